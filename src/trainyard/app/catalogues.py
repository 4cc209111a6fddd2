"""The paths of image catalogues and of built environments. Imports little: some commands start no cluster."""

from __future__ import annotations

import os
from pathlib import Path

CATALOGUE = Path("trainyard", "images.yaml")  # the user's own, in $XDG_CONFIG_HOME


def catalogues(named: tuple[Path, ...]) -> list[Path]:
    """The user's image catalogues: those in `named`, then the one in the configuration folder if it exists."""
    own = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / CATALOGUE
    return [*named, *([own] if own.is_file() else [])]


def cache_folder() -> Path:
    """The folder of built environments."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainyard"
