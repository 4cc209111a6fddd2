"""Writes the page of every kind; run as `python -m tools.generate_kind_pages [FOLDER]`."""

from __future__ import annotations

import sys
from pathlib import Path

from trainyard import kinds
from trainyard.kinds.definitions.pages import kind_page

FOLDER = Path(__file__).parents[1] / "docs" / "kinds"


def written(folder: Path = FOLDER) -> dict[Path, str]:
    """Every file as it should be."""
    pages = {}
    for kind in kinds.KINDS:
        pages[folder / f"{kinds.unique_name(kind)}.md"] = kind_page(kind)
        for version in kind.further_versions:
            pages[folder / f"{kinds.unique_name(kind)}-{version.gvk.version}.md"] = kind_page(version)
    return pages


def write(folder: Path = FOLDER) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in written(folder).items():
        path.write_text(text)


if __name__ == "__main__":
    write(*map(Path, sys.argv[1:2]))
