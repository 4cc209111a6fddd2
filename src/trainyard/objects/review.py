"""The answer of an admission webhook, and the function that gives it inside the process of an API server."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from trainyard.objects.meta import GVK, Json, NamespacedName


class Review(NamedTuple):
    """The object as it is to be stored; `refusal`: why it must not be, "" if it may; `warnings` for the client."""

    object: Json
    refusal: str = ""
    warnings: tuple[str, ...] = ()


Read = Callable[[GVK, NamespacedName], Json | None]
"""A stored object, None without one."""
Reviewer = Callable[[Json, Json | None, Read, float], Review]
"""(the new object, the stored one or None, read, seconds since 1970) -> the answer."""
