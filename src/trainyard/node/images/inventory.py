"""The state of catalogue entries on this machine, and the entries that use an environment of the cache."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from trainyard.node.images import catalogue, interpreters
from trainyard.node.images.catalogue import Image
from trainyard.node.images.environments import Builder
from trainyard.node.images.images import Images
from trainyard.node.images.interpreters import Python
from trainyard.node.images.providers import Candidate
from trainyard.node.images.store import Environment
from trainyard.objects.yaml_reader import ManifestError


class EntryState(msgspec.Struct, frozen=True):
    """The state of an entry: that of its first available provider, or "missing" with the reason of each provider."""

    entry: Image
    candidates: list[Candidate]

    @property
    def available(self) -> Candidate | None:
        """The first candidate that is ready or can be installed, None when all are missing."""
        return next((candidate for candidate in self.candidates if candidate.state != "missing"), None)

    @property
    def state(self) -> Literal["ready", "install", "missing"]:
        """The state of the candidate that a pod would get."""
        return self.available.state if self.available else "missing"

    @property
    def is_shipped(self) -> bool:
        """Whether the entry is of Trainyard's own catalogue, not of a user's."""
        return self.entry.source == str(catalogue.SHIPPED)

    @property
    def missing(self) -> list[str]:
        """The problem of each provider, [] if one is available."""
        return [] if self.available else [str(candidate.problem) for candidate in self.candidates]


async def entry_states(images: Images) -> list[EntryState]:
    """The state of each catalogue entry on this machine, in catalogue order. Runs interpreters, as it finds them."""
    return [EntryState(entry, await images.candidates_of(entry)) for entry in images.entries]


def used_by_entry(environment: Environment, images: Images) -> str:
    """The first pattern of an entry that uses this environment, "" if there is none. Entries of the catalogue in the
    environment's record count, too. Blocks: it may run interpreters."""
    entries = [*images.entries, *_recorded_entries(environment)]
    record = environment.record
    built_with = interpreters.query(str(record.get("python") or ""))
    for entry in entries:
        if _entry_uses(entry, environment.folder, images.builder, [built_with] if built_with else []):
            return entry.match[0]
    return ""


def _recorded_entries(environment: Environment) -> list[Image]:
    file = Path(str(environment.record.get("catalogue") or ""))
    try:
        return catalogue.read(file) if file.is_file() else []
    except ManifestError:
        return []


def _entry_uses(entry: Image, folder: Path, builder: Builder, built_with: Iterable[Python]) -> bool:
    for provider in entry.providers:
        if provider.system is not None:
            base_python = interpreters.query(provider.system.python)
        elif provider.requirements is not None:
            base_python = interpreters.interpreter_for(provider)
        else:
            continue
        if any(
            builder.folder(provider, python) == folder
            for python in [*built_with, *([base_python] if base_python else [])]
        ):
            return True
    return False
