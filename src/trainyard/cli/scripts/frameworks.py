"""The framework of a script, from the imports of the script and of local modules. No module is imported or executed.

Rules:
- Layer 0 is the script, layer 1 the local modules that it imports, layer 2 their imports, and so on. The lowest layer
  with a framework decides; among several frameworks of one layer, the first in FRAMEWORKS does.
- Local modules that do not exist, cannot be read or are no legal Python are ignored; the script itself must be legal
  Python.
"""

from __future__ import annotations

import ast
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from trainyard.kinds import KINDS
from trainyard.objects import Problem
from trainyard.objects.manifest import ManifestError

PLAIN = "plain"
FRAMEWORKS = {
    framework.name: framework
    for framework in sorted(
        (framework for kind in KINDS for framework in kind.scripts), key=lambda framework: framework.precedence
    )
}
"""The frameworks of all kinds by name, in the order of their precedence."""
_FRAMEWORK_OF = {module: name for name, framework in FRAMEWORKS.items() for module in framework.modules}
_MAX_LAYERS, _MAX_FILES, _MAX_FILE_BYTES = 4, 50, 1 << 20


class GuessedFramework(NamedTuple):
    """A framework, and the import that decided."""

    framework: str
    reason: str


class _Import(NamedTuple):
    """One imported module. `level`: number of leading dots of a relative import."""

    module: str
    level: int
    line: int


def guess_framework(script: Path, root: Path) -> GuessedFramework:
    """The framework of a script; `root` is the directory in which local modules are searched.

    Raises ManifestError when the script cannot be read or is no legal Python.
    """
    layer = [(script, _imports_of(_parse_script(script)))]
    visited = {script.resolve()}
    for _ in range(_MAX_LAYERS):
        framework_imports = [
            (framework, path, imported)
            for path, imports in layer
            for imported in imports
            if not imported.level and (framework := _FRAMEWORK_OF.get(imported.module.split(".")[0]))
            and not _is_local_module(root, imported.module)
        ]  # fmt: skip
        for framework in FRAMEWORKS:
            for name, path, imported in framework_imports:
                if name == framework:
                    return GuessedFramework(
                        framework,
                        f"{display_path(path, root)}:{imported.line} imports {imported.module.split('.')[0]}",
                    )
        layer = list(_next_layer(layer, root, visited))
    return GuessedFramework(PLAIN, "no framework among its imports")


def local_sources(script: Path, root: Path) -> list[Path]:
    """The script and the modules in `root` that it imports, at most _MAX_FILES; the script alone if it is no legal
    Python."""
    try:
        layer = [(script, _imports_of(ast.parse(script.read_bytes())))]
    except (OSError, ValueError, SyntaxError):
        return [script]
    visited, files = {script.resolve()}, [script]
    for _ in range(_MAX_LAYERS):
        layer = list(_next_layer(layer, root, visited))
        files += [path for path, _ in layer]
    return files


def display_path(path: Path, root: Path) -> str:
    """A path in messages: relative to `root` if it is in there."""
    return str(path.relative_to(root)) if path.is_relative_to(root) else path.name


def _parse_script(script: Path) -> ast.Module:
    try:
        return ast.parse(script.read_bytes(), str(script))
    except SyntaxError as error:
        fix = f"mend it; or name --framework if it is for a Python newer than {platform.python_version()}"
        raise ManifestError([Problem(f"{script}:{error.lineno or 1}", f"SyntaxError: {error.msg}; {fix}")]) from None
    except ValueError as error:  # a null byte
        raise ManifestError(
            [Problem(f"{script}:1: file", f"is no Python program ({error}); name another file")]
        ) from None
    except OSError as error:
        text = f"cannot be read ({error.strerror}); check its name and its permissions"
        raise ManifestError([Problem(f"{script}:1: file", text)]) from None


def _imports_of(tree: ast.Module) -> list[_Import]:
    """All imports at any depth, by line, except those under `if TYPE_CHECKING:`."""
    imports: list[_Import] = []
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            imports += [_Import(alias.name, 0, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            imports.append(_Import(base, node.level, node.lineno))
            # `from package import module`: each name may be a module of its own.
            imports += [
                _Import(f"{base}.{alias.name}".strip("."), node.level, node.lineno)
                for alias in node.names
                if alias.name != "*"
            ]
        pending += _runtime_children(node)
    return sorted((imported for imported in imports if imported.module), key=lambda imported: imported.line)


def _runtime_children(node: ast.AST) -> list[ast.AST]:
    """The child nodes of a node, without the body of `if TYPE_CHECKING:`."""
    if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
        return list(node.orelse)
    return list(ast.iter_child_nodes(node))


def _next_layer(
    layer: list[tuple[Path, list[_Import]]], root: Path, visited: set[Path]
) -> Iterator[tuple[Path, list[_Import]]]:
    """The local modules that this layer imports, with their imports. `visited` collects their paths: each file once."""
    for path, imports in layer:
        for imported in imports:
            base = path.parents[imported.level - 1] if 0 < imported.level <= len(path.parents) else root
            for file in _module_files(base, imported.module):
                if len(visited) >= _MAX_FILES or file.resolve() in visited:
                    continue
                visited.add(file.resolve())
                try:
                    if file.stat().st_size <= _MAX_FILE_BYTES:
                        yield file, _imports_of(ast.parse(file.read_bytes()))
                except (OSError, ValueError, SyntaxError):
                    continue


def _module_files(base: Path, module: str) -> Iterator[Path]:
    """The existing files that `import a.b.c` would execute: a/__init__.py, a/b/__init__.py, a/b/c.py."""
    path = base
    for name in module.split("."):
        path = path / name
        for file in (path / "__init__.py", path.with_name(f"{path.name}.py")):
            if os.path.isfile(file):
                yield file


def _is_local_module(root: Path, module: str) -> bool:
    """True when `root` has a module of this name: it shadows the framework."""
    top_level = module.split(".", maxsplit=1)[0]
    return os.path.isfile(root / f"{top_level}.py") or os.path.isfile(root / top_level / "__init__.py")
