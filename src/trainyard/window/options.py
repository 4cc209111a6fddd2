"""The options of a window."""

from __future__ import annotations

from pathlib import Path

import msgspec


class WindowOptions(msgspec.Struct, frozen=True):
    """`cluster`: its name on the page. `mode`: local (of this machine), cluster (a real one) or history. `namespace`:
    "" for all. `history`: the folder of the history; None: none is shown."""

    cluster: str
    mode: str = "local"
    namespace: str = ""
    history: Path | None = None
