"""Prints the line coverage of each package of `src/trainyard`, from the JSON report of coverage.py.

python -m tools.coverage_table build/coverage.json
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path, PurePath


def table(report: dict[str, dict[str, dict[str, dict[str, int]]]]) -> list[str]:
    lines: Counter[str] = Counter()
    covered: Counter[str] = Counter()
    for file, measured in report["files"].items():
        below = PurePath(file).parts
        below = below[below.index("trainyard") :]
        for package in (".".join(below[:2]) if len(below) > 2 else "trainyard", "TOTAL"):
            lines[package] += measured["summary"]["num_statements"]
            covered[package] += measured["summary"]["covered_lines"]
    packages = [*sorted(lines.keys() - {"TOTAL"}), "TOTAL"]
    rows = [f"{name:<34}{lines[name]:>8}{covered[name] / max(lines[name], 1):>9.1%}" for name in packages]
    return [f"{'package':<34}{'lines':>8}{'covered':>9}", *rows]


if __name__ == "__main__":
    print("\n".join(table(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))))
