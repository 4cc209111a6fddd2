"""Where image catalogues and built environments are. Light: commands that start no cluster load only this."""

from __future__ import annotations

import os
from pathlib import Path

CATALOGUE = Path("trainyard", "images.yaml")  # a person's own, in the user's configuration folder


def catalogues(named: tuple[Path, ...]) -> list[Path]:
    """The image catalogues of a person: those named, then the one in the configuration folder."""
    own = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / CATALOGUE
    return [*named, *([own] if own.is_file() else [])]


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainyard"
