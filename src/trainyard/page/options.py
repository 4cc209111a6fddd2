"""The options of a page server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec


class ClaimFolders(msgspec.Struct, frozen=True):
    """Where the node has the files of PersistentVolumeClaims: `mounts` by the name of the claim, the others in
    `root`/NAMESPACE/CLAIM. `root` is None where there is no node."""

    root: Path | None = None
    mounts: Mapping[str, Path] = {}

    def folder(self, namespace: str, claim: str) -> Path | None:
        """The folder of a claim; None if there is none on this machine."""
        if claim in self.mounts or self.root is None or "/" in claim or claim in ("", ".", ".."):
            return self.mounts.get(claim)
        return self.root / namespace / claim


class PageOptions(msgspec.Struct, frozen=True):
    """`cluster`: its name on the page. `mode`: local (of this machine), cluster (a real one) or history. `namespace`:
    "" for all. `history`: the folder of the history; None: none is shown. `claims`: for event files in volumes."""

    cluster: str
    mode: str = "local"
    namespace: str = ""
    history: Path | None = None
    claims: ClaimFolders = ClaimFolders()
