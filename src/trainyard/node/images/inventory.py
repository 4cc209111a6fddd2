"""What the catalogues say and what the cache holds, side by side."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from trainyard.node.images import catalogue, interpreters
from trainyard.node.images.catalogue import Image
from trainyard.node.images.environments import Builder
from trainyard.node.images.interpreters import Python
from trainyard.node.images.room import Images
from trainyard.node.images.store import Environment
from trainyard.node.images.ways import Candidate
from trainyard.objects.strict import ManifestError


class EntryState(msgspec.Struct, frozen=True):
    """How an entry stands: by its first way that can be had, or, where none can, with the reason of each."""

    entry: Image
    candidates: list[Candidate]

    @property
    def taken(self) -> Candidate | None:
        return next((candidate for candidate in self.candidates if candidate.state != "missing"), None)

    @property
    def state(self) -> Literal["ready", "install", "missing"]:
        return self.taken.state if self.taken else "missing"

    @property
    def is_shipped(self) -> bool:
        return self.entry.source == str(catalogue.SHIPPED)

    @property
    def missing(self) -> list[str]:
        """Why no way can be had."""
        return [] if self.taken else [str(candidate.problem) for candidate in self.candidates]


async def entry_states(images: Images) -> list[EntryState]:
    return [EntryState(entry, await images.candidates_of(entry)) for entry in images.entries]


def named_by(environment: Environment, images: Images) -> str:
    """The pattern of an entry that names this environment, "" when none does. The catalogue that it was built for
    counts, too, wherever that is. Blocks: it may ask interpreters."""
    entries = [*images.entries, *_recorded(environment)]
    record = environment.record
    built_with = interpreters.asked(str(record.get("python") or ""))
    for entry in entries:
        if _names(entry, environment.folder, images.builder, [built_with] if built_with else []):
            return entry.match[0]
    return ""


def _recorded(environment: Environment) -> list[Image]:
    file = Path(str(environment.record.get("catalogue") or ""))
    try:
        return catalogue.read(file) if file.is_file() else []
    except ManifestError:
        return []


def _names(entry: Image, folder: Path, builder: Builder, built_with: Iterable[Python]) -> bool:
    for way in entry.ways:
        if way.system is not None:
            found = interpreters.asked(way.system.python)
        elif way.requirements is not None:
            found = interpreters.serving(way)
        else:
            continue
        if any(builder.folder(way, python) == folder for python in [*built_with, *([found] if found else [])]):
            return True
    return False
