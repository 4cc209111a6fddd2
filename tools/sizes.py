"""The limits on size, checked by `make lint`: prints what is beyond them without a reason, and then ends with 1.

- A function has at most 40 lines, its docstring not counted; a class at most 15 methods, properties and special methods
  not counted; a file at most 400 lines.
- A folder has at most 32 modules, those of its subfolders not counted.
- What has to be longer says so in its head: `Longer than 40 lines: REASON` or `More than 15 methods: REASON` in the
  docstring or in a comment in the line above it, `Longer than 400 lines: REASON` in the docstring of the file.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

# Programs that run inside images, each in one file.
EXCLUDED = ("kinds/files", "programs")
ROOT = Path(__file__).parents[1] / "src" / "trainyard"
LINES, METHODS, FILE_LINES, MODULES = 40, 15, 400, 32
Function = ast.FunctionDef | ast.AsyncFunctionDef


def code_lines(function: Function) -> int:
    """The lines of a function without its docstring."""
    docstring = function.body[0]
    counted = (function.end_lineno or 0) - function.lineno + 1
    if ast.get_docstring(function) is None:
        return counted
    return counted - ((docstring.end_lineno or 0) - docstring.lineno + 1)


def methods(definition: ast.ClassDef) -> list[str]:
    """The names of the methods that count."""
    return [
        node.name
        for node in definition.body
        if isinstance(node, Function)
        and not (node.name.startswith("__") and node.name.endswith("__"))
        and not any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
    ]


def exceeded(text: str) -> Iterator[tuple[int, str]]:
    """(line, message) of each function and class beyond the limits, and line 1 for the file itself."""
    lines, tree = text.split("\n"), ast.parse(text)
    if len(lines) - 1 > FILE_LINES and f"Longer than {FILE_LINES} lines:" not in (ast.get_docstring(tree) or ""):
        yield 1, f"{len(lines) - 1} lines, more than {FILE_LINES}"
    for node in ast.walk(tree):
        if isinstance(node, Function) and code_lines(node) > LINES:
            message, marker = f"{node.name}: {code_lines(node)} lines", f"Longer than {LINES} lines:"
        elif isinstance(node, ast.ClassDef) and len(methods(node)) > METHODS:
            message, marker = f"{node.name}: {len(methods(node))} methods", f"More than {METHODS} methods:"
        else:
            continue
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        above = lines[max(0, first - 3) : first - 1]
        if marker not in (ast.get_docstring(node) or "") and not any(marker in line for line in above):
            yield node.lineno, message


def crowded(root: Path) -> Iterator[str]:
    """A problem for each folder below `root` with too many modules."""
    for folder in sorted({path.parent for path in root.rglob("*.py")}):
        count = len(list(folder.glob("*.py")))
        if count > MODULES:
            yield f"{folder.relative_to(root)}: {count} modules, more than {MODULES}: group them in packages"


def main() -> None:
    """Print each excess as `FILE:LINE: what`."""
    problems = [
        f"{path.relative_to(ROOT.parents[1])}:{line}: {message}"
        for path in sorted(ROOT.rglob("*.py"))
        if not str(path.relative_to(ROOT)).startswith(EXCLUDED)
        for line, message in exceeded(path.read_text(encoding="utf-8"))
    ]
    problems += crowded(ROOT)
    print("\n".join(problems), end="\n" if problems else "")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
