"""Helpers for the defaults of built-in resources."""

from __future__ import annotations

from typing import Any

from trainyard.objects import Json


def set_defaults(target: Json, **defaults: Any) -> None:
    """Set the fields that are missing or null."""
    for name, value in defaults.items():
        if target.get(name) is None:
            target[name] = value


def set_defaults_for_zero(target: Json, **defaults: Any) -> None:
    """Set the fields that are missing, null, "" or 0, as kube-apiserver does for Go fields without a pointer."""
    for name, value in defaults.items():
        if not target.get(name):
            target[name] = value


def string_or_empty(value: Any) -> str:
    """The value if it is a string, "" for anything else."""
    return value if isinstance(value, str) else ""
