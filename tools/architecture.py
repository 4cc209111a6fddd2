"""Writes docs/layers.md: the layers of `src/trainyard` as a picture, from the import contracts in pyproject.toml.

python -m tools.architecture           write it
python -m tools.architecture --check   fail if it is not up to date
"""

from __future__ import annotations

import ast
import itertools
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "layers.md"
TEXT = """\
# Architecture

Written by `tools/architecture.py` from the import contracts in `pyproject.toml` and from the docstrings of the
packages. `make lint` checks the contracts.

A package of `src/trainyard` may import the packages of every lower layer. It imports no package of a higher layer, and
none of its own layer. Each arrow leads to the next lower layer.

```mermaid
flowchart TB
{arrows}
```

| Package | What it is |
| --- | --- |
{packages}

These imports are forbidden as well:

| Contract | Packages | Must not import |
| --- | --- | --- |
{forbidden}

[Design](design.md) has the reasons.
"""


def page() -> str:
    """The whole page, as Markdown."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (layers,) = (
        contract["layers"]
        for contract in contracts
        if contract["type"] == "layers" and "containers" not in contract  # those with containers are inside a package
    )
    rows = [[short(module.strip()) for module in layer.split("|")] for layer in layers]
    arrows = [f"  {' & '.join(upper)} --> {' & '.join(lower)}" for upper, lower in itertools.pairwise(rows)]
    packages = [f"| `{name}` | {purpose(name)} |" for row in rows for name in row]
    forbidden = [forbidden_row(contract) for contract in contracts if contract["type"] == "forbidden"]
    return TEXT.format(arrows="\n".join(arrows), packages="\n".join(packages), forbidden="\n".join(forbidden))


def forbidden_row(contract: dict[str, list[str]]) -> str:
    """A row of the table. A forbidden import through other packages counts as well, unless the contract allows it."""
    sources, targets = (
        ", ".join(f"`{short(module)}`" for module in contract[key]) for key in ("source_modules", "forbidden_modules")
    )
    return (
        f"| {contract['name']} | {sources} | {targets}{' (directly)' * bool(contract.get('allow_indirect_imports'))} |"
    )


def short(module: str) -> str:
    return module.removeprefix("trainyard.")


def purpose(package: str) -> str:
    """The first sentence of the docstring of a package, or of a module, with `|` escaped for a table."""
    folder = ROOT / "src" / "trainyard" / package
    path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    words = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n\n")[0].split()
    return " ".join(words).split(". ")[0].removesuffix(".").replace("|", "\\|")


if __name__ == "__main__":
    if "--check" not in sys.argv:
        PAGE.write_text(page(), encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != page():
        sys.exit(f"{PAGE.relative_to(ROOT)} is not what the code says; run: python -m tools.architecture")
