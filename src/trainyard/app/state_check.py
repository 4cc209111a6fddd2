"""Whether a kept state is whole: asked before anything in it is opened for writing, so that a refusal changes nothing.

    keys.json   format, token, key, port, certified; `files` has the SHA-256 of each certificate file, `checksum` that
                of all other fields. Without `format` it was written by an older program, and has neither.

Rules:
- Every refusal is a DiskError: one sentence that names the path, what is wrong with it and the fix.
- Nothing is written, made or repaired here.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any

from trainyard.objects import encode
from trainyard.server import DiskError
from trainyard.server.disk import NAME

FACTS = "keys.json"
FORMAT = 1
_AGAIN = "put it back from a copy, or move the state away to start anew"


def encoded(facts: dict[str, Any]) -> bytes:
    """What keys.json holds for these facts."""
    facts = {**facts, "format": FORMAT}
    facts.pop("checksum", None)
    return json.dumps({**facts, "checksum": _checksum(facts)}).encode()


def digest(path: Path) -> str:
    """SHA-256 of a file, hexadecimal. Raises OSError."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def check_state(folder: Path) -> dict[str, Any] | None:
    """The facts of keys.json; None in a folder in which no cluster has been. Raises DiskError."""
    keys, log, node = folder / "keys", folder / "log", folder / "node"
    for part in (folder, keys, log, node):
        if _present(part):
            _must_be_private(part, stat.S_ISDIR, "folder")
    for part in (keys, log):
        for path in sorted(part.iterdir()) if part.is_dir() else ():
            _must_be_private(path, stat.S_ISREG, "regular file")
    has_log = (log / NAME).is_file() and (log / NAME).stat().st_size > 0
    kept = node.is_dir() and any(node.iterdir())
    facts = _facts(keys / FACTS) if _present(keys / FACTS) else None
    if facts is None and (has_log or kept):
        raise DiskError(keys / FACTS, f"it is missing, but what belongs to it is there; {_AGAIN}", spoilt=True)
    if not has_log and (kept or (facts or {}).get("port")):  # the port is kept when the log has entries already
        what = "it is empty" if (log / NAME).exists() else "it is missing"
        raise DiskError(log / NAME, f"{what}, but what belongs to it is there; {_AGAIN}", spoilt=True)
    for name, wanted in (facts or {}).get("files", {}).items():
        try:
            same = digest(keys / name) == wanted
        except OSError:
            raise DiskError(keys / name, f"it is missing or cannot be read; {_AGAIN}", spoilt=True) from None
        if not same:
            raise DiskError(keys / name, f"it is not what was written; {_AGAIN}", spoilt=True)
    return facts


def _facts(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_bytes())
        if not isinstance(facts, dict):
            raise ValueError("it is no object")
        version = facts.get("format")
        if isinstance(version, int) and version > FORMAT:
            text = f"it was written by a newer trainyard (format {version}, this one knows {FORMAT}); install that one"
            raise DiskError(path, text, spoilt=True)
        if version is not None or "checksum" in facts:
            checksum = facts.pop("checksum", None)
            if checksum != _checksum(facts):
                raise ValueError("its fields are not what was written")
        _must_be_usable(facts)
    except OSError as error:
        raise _unreadable(path, error) from None
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise DiskError(path, f"it is broken ({reason}); {_AGAIN}", spoilt=True) from None
    return facts


def _must_be_usable(facts: dict[str, Any]) -> None:
    """Raises ValueError, TypeError."""
    for name in ("token", "key"):
        secret = facts.get(name)
        if not (isinstance(secret, str) and len(secret) >= 32) and not (name == "key" and name not in facts):
            raise ValueError(f"its {name} is no secret of 32 characters")
    if not isinstance(port := facts.get("port") or 0, int) or not 0 <= port <= 65535:
        raise ValueError("its port is not between 0 and 65535")
    if not isinstance(facts.get("certified", 0.0), int | float):
        raise ValueError("its time of certification is no number")
    files = facts.get("files", {})
    if not isinstance(files, dict) or not all(isinstance(name, str) and "/" not in name for name in files):
        raise ValueError("its files are no names with checksums")


def _must_be_private(path: Path, right: Any, what: str) -> None:
    try:
        state = path.lstat()
    except FileNotFoundError:  # a journal that another process has just finished with
        return
    except OSError as error:
        raise _unreadable(path, error) from None
    needed = 0o700 if right is stat.S_ISDIR else 0o600
    mode = stat.S_IMODE(state.st_mode)
    if not right(state.st_mode):
        raise DiskError(path, f"it is not a {what}; {_AGAIN}", spoilt=True)
    if state.st_uid != os.getuid():
        raise DiskError(path, f"it belongs to user {state.st_uid}, not to {os.getuid()}; give it back with chown")
    if mode & needed != needed or mode & 0o077:
        raise DiskError(path, f"its mode is {mode:04o}, not {needed:04o}; see who has used it, then chmod {needed:o}")


def _unreadable(path: Path, error: OSError) -> DiskError:
    return DiskError(path, f"{(error.strerror or str(error)).lower()}; give this user the right to read it")


def _present(path: Path) -> bool:
    return os.path.lexists(path)


def _checksum(facts: dict[str, Any]) -> str:
    return hashlib.sha256(encode(sorted(facts.items()))).hexdigest()
