"""The files of the page, read once. Their URL has a hash of all of them, so that browsers may keep them for ever."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import NamedTuple

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}


class Asset(NamedTuple):
    """One file."""

    content_type: str
    body: bytes


class Assets(NamedTuple):
    """All files but the page, by their path. `version`: the hash in their URL. `page`: index.html."""

    version: str
    page: bytes
    files: dict[str, Asset]


@cache
def load_assets() -> Assets:
    """The assets of this installation."""
    contents: dict[str, bytes] = {}
    folders = [("", files("trainyard.page") / "static")]
    while folders:
        prefix, folder = folders.pop()
        for entry in folder.iterdir():
            if entry.is_dir():
                folders.append((f"{prefix}{entry.name}/", entry))
            else:
                contents[f"{prefix}{entry.name}"] = entry.read_bytes()
    version = sha256(b"".join(name.encode() + contents[name] for name in sorted(contents))).hexdigest()[:16]
    page = contents.pop("index.html").replace(b"static/@/", f"static/{version}/".encode())
    assets = {
        name: Asset(TYPES[suffix], body)
        for name, body in contents.items()
        if (suffix := f".{name.rpartition('.')[2]}") in TYPES
    }
    return Assets(version, page, assets)
