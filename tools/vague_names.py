"""Names that do not say what they hold, checked by `make lint`: prints each of them, and then ends with 1.

A variable, parameter, field or function is named after what it holds or does (`pod`, `problems`, `deadline`). The
names in `VAGUE` fit anything, so a reader has to look up what they stand for.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Programs that run inside images: the text of kubexec.py is part of ConfigMaps that clusters have.
EXCLUDED = ("src/trainyard/kinds/files", "src/trainyard/programs")
FOLDERS = ("src", "tests", "tools", "bench")
VAGUE = frozenset(
    {"one", "each", "found", "said", "told", "asked", "made", "ran", "seen", "so", "still", "well"},
)

DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ExceptHandler | ast.MatchAs | ast.MatchStar


def bound_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, name) of every variable, parameter, field and function that the module defines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, DEFINITIONS) and node.name:
            yield node.lineno, node.name


def vague_names(text: str) -> list[tuple[int, str]]:
    """(line, name) of each vague name, in the order of the lines."""
    return sorted((line, name) for line, name in bound_names(ast.parse(text)) if name in VAGUE)


def main() -> None:
    """Print each vague name as `FILE:LINE: NAME`."""
    problems = [
        f"{path.relative_to(ROOT)}:{line}: {name!r} does not say what it holds"
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not str(path.relative_to(ROOT)).startswith(EXCLUDED)
        for line, name in vague_names(path.read_text(encoding="utf-8"))
    ]
    print("\n".join(problems), end="\n" if problems else "")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
