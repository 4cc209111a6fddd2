"""The image that only a cluster on this machine has: what `lint` and `submit` say of it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainyard.cli.scripts.manifest import LOCAL_IMAGE
from trainyard.objects import Json, Problem

_FIELDS = ("image", "tfImage")


def warnings(job: Json) -> list[str]:
    """What to say of a job that goes to a cluster elsewhere."""
    if not any(_names_it(job)):
        return []
    text = f"{LOCAL_IMAGE} is this machine's Python and files, no image that a cluster can pull"
    return [f"image: {text}; make the manifest with --image NAME, or edit the field"]


def problems(value: Any, path: str = "") -> Iterator[Problem]:
    """The containers of a job that run nothing: the image has no program of its own."""
    if isinstance(value, dict):
        if value.get("image") == LOCAL_IMAGE and "name" in value and not (value.get("command") or value.get("args")):
            text = f"Required value: the image {LOCAL_IMAGE} has no program of its own; write what the container runs"
            yield Problem(f"{path}.command", text)
        for key, below in value.items():
            yield from problems(below, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from problems(below, f"{path}[{index}]")


def _names_it(value: Any) -> Iterator[bool]:
    if isinstance(value, dict):
        for key, below in value.items():
            yield key in _FIELDS and below == LOCAL_IMAGE
            yield from _names_it(below)
    elif isinstance(value, list):
        for below in value:
            yield from _names_it(below)
