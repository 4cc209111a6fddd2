"""Reads of files that a program of a job may have replaced, checked by `make lint`: prints each that app/job_files.py
should do instead, and then ends with 1.

Such a file may be a FIFO, whose open blocks, or a link to a file that its reader would give away. A module handles such
files if it is in the history, or imports one of MARKERS or of MARKED_MODULES. There it may not open, list or measure a
path itself, unless the call excludes both: by O_NOFOLLOW or O_EXCL, or the mode "x".
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
HISTORY = "trainyard.app.history."
OPENER = "trainyard.app.job_files"
MARKERS = frozenset(
    {
        "trainyard.app.history.records.HistoryRecord",
        "trainyard.app.history.recorded_logs.LogFile",
        "trainyard.node.kubelet.api.pod_logs.open_log",
        "trainyard.objects.metric_points.METRICS",
    }
)
MARKED_MODULES = (OPENER, "trainyard.objects.log_files", "trainyard.page.tfevents")
METHODS = frozenset({"read_text", "read_bytes", "stat", "glob", "rglob"})  # of a Path
FUNCTIONS = frozenset({"os.open", "os.stat", "os.listdir", "os.scandir", "os.path.getsize", "os.path.getmtime"})
SAFE_FLAGS = ("O_NOFOLLOW", "O_EXCL")
MODES = frozenset("rwabtx+U")


def handles_job_files(tree: ast.AST, module: str) -> bool:
    """Whether the module of that name reads what jobs wrote."""
    if module == OPENER:
        return False
    return module.startswith(HISTORY) or any(
        name in MARKERS or name.startswith(MARKED_MODULES) for name in _imports(tree)
    )


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def plain_reads(text: str, module: str) -> list[tuple[int, str]]:
    """(line, call) of each such read in a module."""
    tree = ast.parse(text)
    if not handles_job_files(tree, module):
        return []
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return sorted((call.lineno, ast.unparse(call.func)) for call in calls if _is_plain(call))


def _is_plain(call: ast.Call) -> bool:
    name, arguments = ast.unparse(call.func), [*call.args, *(keyword.value for keyword in call.keywords)]
    if any(flag in ast.unparse(argument) for argument in arguments for flag in SAFE_FLAGS):
        return False
    if name == "open":
        return not (arguments and isinstance(arguments[0], ast.Call))  # the call returns a descriptor, and is looked at
    if name in FUNCTIONS:
        return True
    if not isinstance(call.func, ast.Attribute):
        return False
    if call.func.attr == "open":  # of a Path: anything else that opens takes no mode first
        mode = arguments[0].value if arguments and isinstance(arguments[0], ast.Constant) else None
        return not arguments or (isinstance(mode, str) and MODES.issuperset(mode) and "x" not in mode)
    return call.func.attr in METHODS


def main() -> None:
    """Print each read as `FILE:LINE: CALL`."""
    problems = []
    for path in sorted((SOURCE / "trainyard").rglob("*.py")):
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        problems += [
            f"{path.relative_to(ROOT)}:{line}: {call}: a job may have put a FIFO or a link there; use {OPENER}"
            for line, call in plain_reads(path.read_text(encoding="utf-8"), module)
        ]
    print("\n".join(problems), end="\n" if problems else "")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
