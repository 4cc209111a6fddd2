"""Checks that the state of a stopped cluster is complete, before any of its files is opened for writing: a refusal
changes nothing.

    keys.json   format, token, key, port, certified; `files` has the SHA-256 of each certificate file, `checksum` that
                of all other fields. A file without `format` was written by an older program, and has neither.

Rules:
- Every refusal is a DiskError: one sentence that names the path, the problem and the fix.
- This module writes, creates and repairs nothing.
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
from trainyard.server.storage.database import NAME

FACTS = "keys.json"
FORMAT = 1
_RESTORE = "restore it from a copy, or move the state away to start with an empty one"


def encode_facts(facts: dict[str, Any]) -> bytes:
    """The content of keys.json for these facts."""
    facts = {**facts, "format": FORMAT}
    facts.pop("checksum", None)
    return json.dumps({**facts, "checksum": _checksum(facts)}).encode()


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, hexadecimal. Raises OSError."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def check_state(folder: Path) -> dict[str, Any] | None:
    """The facts of keys.json; None for a folder that holds no state yet. Raises DiskError."""
    keys, log, node = folder / "keys", folder / "log", folder / "node"
    for part in (folder, keys, log, node):
        if _exists(part):
            _must_be_private(part, stat.S_ISDIR, "folder")
    for part in (keys, log):
        for path in sorted(part.iterdir()) if part.is_dir() else ():
            _must_be_private(path, stat.S_ISREG, "regular file")
    has_log = (log / NAME).is_file() and (log / NAME).stat().st_size > 0
    has_node = node.is_dir() and any(node.iterdir())
    facts = _facts(keys / FACTS) if _exists(keys / FACTS) else None
    if facts is None and (has_log or has_node):
        raise DiskError(keys / FACTS, f"it is missing, but its other files exist; {_RESTORE}", spoilt=True)
    if not has_log and (has_node or (facts or {}).get("port")):  # the port is stored after the first entries of the log
        problem = "it is empty" if (log / NAME).exists() else "it is missing"
        raise DiskError(log / NAME, f"{problem}, but its other files exist; {_RESTORE}", spoilt=True)
    for name, expected in (facts or {}).get("files", {}).items():
        try:
            unchanged = sha256_of(keys / name) == expected
        except OSError:
            raise DiskError(keys / name, f"it is missing or cannot be read; {_RESTORE}", spoilt=True) from None
        if not unchanged:
            raise DiskError(keys / name, f"its content has changed; {_RESTORE}", spoilt=True)
    return facts


def _facts(path: Path) -> dict[str, Any]:
    """The facts of keys.json, with valid fields and checksum. Raises DiskError."""
    try:
        facts = json.loads(path.read_bytes())
        if not isinstance(facts, dict):
            raise ValueError("it is not an object")
        version = facts.get("format")
        if isinstance(version, int) and version > FORMAT:
            text = f"it was written by a newer trainyard (format {version}, this one knows {FORMAT}); install that one"
            raise DiskError(path, text, spoilt=True)
        if version is not None or "checksum" in facts:
            checksum = facts.pop("checksum", None)
            if checksum != _checksum(facts):
                raise ValueError("its fields do not match their checksum")
        _must_be_usable(facts)
    except OSError as error:
        raise _unreadable(path, error) from None
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise DiskError(path, f"it is broken ({reason}); {_RESTORE}", spoilt=True) from None
    return facts


def _must_be_usable(facts: dict[str, Any]) -> None:
    """Check types and ranges of the fields. Raises ValueError, TypeError."""
    for name in ("token", "key"):
        secret = facts.get(name)
        if not (isinstance(secret, str) and len(secret) >= 32) and not (name == "key" and name not in facts):
            raise ValueError(f"its {name} is not a secret of 32 characters")
    if not isinstance(port := facts.get("port") or 0, int) or not 0 <= port <= 65535:
        raise ValueError("its port is not between 0 and 65535")
    if not isinstance(facts.get("certified", 0.0), int | float):
        raise ValueError("the time of its certificate is not a number")
    files = facts.get("files", {})
    if not isinstance(files, dict) or not all(isinstance(name, str) and "/" not in name for name in files):
        raise ValueError("its files are not names with checksums")


def _must_be_private(path: Path, is_type: Any, type_name: str) -> None:
    """Check the type of the file, that this user owns it, and that no other user can access it. Raises DiskError."""
    try:
        status = path.lstat()
    except FileNotFoundError:  # a journal that another process has just removed
        return
    except OSError as error:
        raise _unreadable(path, error) from None
    needed = 0o700 if is_type is stat.S_ISDIR else 0o600
    mode = stat.S_IMODE(status.st_mode)
    if not is_type(status.st_mode):
        raise DiskError(path, f"it is not a {type_name}; {_RESTORE}", spoilt=True)
    if status.st_uid != os.getuid():
        raise DiskError(path, f"it belongs to user {status.st_uid}, not to {os.getuid()}; give it back with chown")
    if mode & needed != needed or mode & 0o077:
        raise DiskError(path, f"its mode is {mode:04o}, not {needed:04o}; see who has used it, then chmod {needed:o}")


def _unreadable(path: Path, error: OSError) -> DiskError:
    return DiskError(path, f"{(error.strerror or str(error)).lower()}; allow this user to read it")


def _exists(path: Path) -> bool:
    """Whether the path exists, also as a dangling symlink."""
    return os.path.lexists(path)


def _checksum(facts: dict[str, Any]) -> str:
    """The SHA-256 of the facts, sorted by field name, hexadecimal."""
    return hashlib.sha256(encode(sorted(facts.items()))).hexdigest()
