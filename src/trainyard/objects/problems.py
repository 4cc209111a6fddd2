"""A problem of a user's manifest or of an API object: its field, and what to write instead."""

from __future__ import annotations

import msgspec


class Problem(msgspec.Struct, frozen=True, order=True):
    """One problem. `path` is as the API server writes it (`spec.replicaSpecs[0].replicas`), "" for the whole object."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}" if self.path else self.text
