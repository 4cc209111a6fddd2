"""Checks of `lint` and `submit` for LOCAL_IMAGE, which exists only in a cluster on this machine. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainyard.core.scripts import LOCAL_IMAGE
from trainyard.objects import Json, Problem

_IMAGE_FIELDS = ("image", "tfImage")


def warnings(job: Json) -> list[str]:
    """Warnings for a job with LOCAL_IMAGE that is submitted to a cluster on other machines."""
    if not any(_local_image_fields(job)):
        return []
    text = f"{LOCAL_IMAGE} is this machine's Python and files, no image that a cluster can pull"
    return [f"image: {text}; make the manifest with --image NAME, or edit the field"]


def problems(value: Any, path: str = "") -> Iterator[Problem]:
    """Problems of containers with LOCAL_IMAGE and without command and args: the image has no entrypoint."""
    if isinstance(value, dict):
        if value.get("image") == LOCAL_IMAGE and "name" in value and not (value.get("command") or value.get("args")):
            text = f"Required value: the image {LOCAL_IMAGE} has no program of its own; write what the container runs"
            yield Problem(f"{path}.command", text)
        for key, child in value.items():
            yield from problems(child, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from problems(child, f"{path}[{index}]")


def _local_image_fields(value: Any) -> Iterator[bool]:
    if isinstance(value, dict):
        for key, child in value.items():
            yield key in _IMAGE_FIELDS and child == LOCAL_IMAGE
            yield from _local_image_fields(child)
    elif isinstance(value, list):
        for child in value:
            yield from _local_image_fields(child)
