"""Files of others are as they were published, and named with their version and licence."""

from __future__ import annotations

import tomllib
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

import pytest

import trainyard

FOLDERS = [
    Path(str(files(trainyard))) / "window" / "static" / "vendor",
    Path(__file__).parent / "browser" / "vendor",
]


@pytest.mark.parametrize("folder", FOLDERS, ids=["page", "tests"])
def test_vendored_files_are_unchanged(folder: Path) -> None:
    listed = tomllib.loads((folder / "VENDOR.toml").read_text())
    expected = {name: digest for entry in listed.values() for name, digest in entry["files"].items()}
    actual = {
        path.name: sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.name in expected or path.suffix in (".js", ".css")
    }
    assert actual == expected
    assert all(entry["version"] in entry["source"] and entry["license"] for entry in listed.values())
