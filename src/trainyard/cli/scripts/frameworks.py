"""The framework of a script, from the imports of the script and of the modules beside it. Nothing is imported or run.

Rules:
- The script itself comes first, then the modules it imports, then theirs: what is nearest decides. Among frameworks
  in one and the same layer, the one that stands first in FRAMEWORKS does.
- What cannot be found or read beside the script is passed over; only the script itself must be legal Python.
"""

from __future__ import annotations

import ast
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from trainyard.objects import Problem
from trainyard.objects.manifest import ManifestError

PLAIN = "plain"
FRAMEWORKS: dict[str, tuple[str, ...]] = {
    # MPI starts the processes whatever else they use. JAX programs often read data with torch or TensorFlow, and torch
    # programs write logs with TensorFlow.
    "chainer": ("chainer", "chainermn"),
    "mpi4py": ("mpi4py", "horovod"),
    "mxnet": ("mxnet", "gluoncv", "gluonnlp"),
    "jax": ("jax", "flax", "optax", "haiku", "equinox"),
    "torch": (
        "torch", "torchvision", "torchaudio", "lightning", "pytorch_lightning", "accelerate", "deepspeed", "fastai",
        "timm", "ignite", "transformers", "sentence_transformers",
    ),
    "tensorflow": ("tensorflow", "keras", "tf_keras"),
    PLAIN: (),
}  # fmt: skip
_FRAMEWORK_OF = {module: name for name, modules in FRAMEWORKS.items() for module in modules}
_LAYERS, _MOST_FILES, _MOST_BYTES = 4, 50, 1 << 20


class Guess(NamedTuple):
    """A framework, and why."""

    framework: str
    reason: str


class _Import(NamedTuple):
    """One imported module. `level`: the dots in front of a relative import."""

    module: str
    level: int
    line: int


def guess(script: Path, root: Path) -> Guess:
    """The framework of a script; `root` is the folder in which its imports are looked for.

    Raises ManifestError when the script is no Python.
    """
    layer = [(script, _imports(_parsed(script)))]
    seen = {script.resolve()}
    for _ in range(_LAYERS):
        hits = [
            (framework, path, one)
            for path, imports in layer
            for one in imports
            if not one.level and (framework := _FRAMEWORK_OF.get(one.module.split(".")[0]))
            and not _is_local(root, one.module)
        ]  # fmt: skip
        for framework in FRAMEWORKS:
            for name, path, one in hits:
                if name == framework:
                    return Guess(framework, f"{_shown(path, root)}:{one.line} imports {one.module.split('.')[0]}")
        layer = list(_next_layer(layer, root, seen))
    return Guess(PLAIN, "no framework among its imports")


def _shown(path: Path, root: Path) -> str:
    return str(path.relative_to(root)) if path.is_relative_to(root) else path.name


def _parsed(script: Path) -> ast.Module:
    try:
        return ast.parse(script.read_bytes(), str(script))
    except SyntaxError as error:
        fix = f"mend it; or name --framework if it is for a Python newer than {platform.python_version()}"
        raise ManifestError([Problem(f"{script}:{error.lineno or 1}", f"SyntaxError: {error.msg}; {fix}")]) from None
    except ValueError as error:  # a null byte
        raise ManifestError([Problem(str(script), f"is no Python program ({error}); name another file")]) from None
    except OSError as error:
        text = f"cannot be read ({error.strerror}); name a file that can"
        raise ManifestError([Problem(str(script), text)]) from None


def _imports(tree: ast.Module) -> list[_Import]:
    """Every import, wherever it stands, but for those that only a type checker reads."""
    found: list[_Import] = []
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            found += [_Import(alias.name, 0, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            found.append(_Import(base, node.level, node.lineno))
            # `from package import module`: each name may be a module of its own.
            found += [
                _Import(f"{base}.{alias.name}".strip("."), node.level, node.lineno)
                for alias in node.names
                if alias.name != "*"
            ]
        waiting += _read_by_python(node)
    return sorted((one for one in found if one.module), key=lambda one: one.line)


def _read_by_python(node: ast.AST) -> list[ast.AST]:
    """What is below a node, without what stands under `if TYPE_CHECKING:`."""
    if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
        return list(node.orelse)
    return list(ast.iter_child_nodes(node))


def _next_layer(
    layer: list[tuple[Path, list[_Import]]], root: Path, seen: set[Path]
) -> Iterator[tuple[Path, list[_Import]]]:
    """The modules beside the script that this layer imports, each once."""
    for path, imports in layer:
        for one in imports:
            base = path.parents[one.level - 1] if 0 < one.level <= len(path.parents) else root
            for file in _files_of(base, one.module):
                if len(seen) >= _MOST_FILES or file.resolve() in seen:
                    continue
                seen.add(file.resolve())
                try:
                    if file.stat().st_size <= _MOST_BYTES:
                        yield file, _imports(ast.parse(file.read_bytes()))
                except (OSError, ValueError, SyntaxError):
                    continue


def _files_of(base: Path, module: str) -> Iterator[Path]:
    """The files that importing `a.b.c` would run: a/__init__.py, a/b/__init__.py, a/b/c.py."""
    place = base
    for part in module.split("."):
        place = place / part
        for file in (place / "__init__.py", place.with_name(f"{place.name}.py")):
            if os.path.isfile(file):
                yield file


def _is_local(root: Path, module: str) -> bool:
    """A module beside the script hides the framework of that name."""
    first = module.split(".")[0]
    return os.path.isfile(root / f"{first}.py") or os.path.isfile(root / first / "__init__.py")
