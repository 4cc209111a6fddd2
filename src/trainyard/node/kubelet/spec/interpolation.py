"""Interpolation of texts in a pod's spec: `$(VAR)`, field references, resource references. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from trainyard.objects import Json, quantities
from trainyard.objects.patterns import lazy_pattern

MAX_TEXT_BYTES, MAX_TEXTS_BYTES = 128 << 10, 2 << 20
"""The kernel's limits in bytes: of one argument or variable, and of all of one program (MAX_ARG_STRLEN, ARG_MAX)."""
_REFERENCE = re.compile(r"\$(?:\$|\(([^()]*)\))")
_KEYED = lazy_pattern(r"metadata\.(labels|annotations)\['([^']+)'\]$")


class TooLong(Exception):
    """A text, or all texts of one program together, exceed the kernel's limit."""


class ArgumentSpace:
    """The space left for the texts of one program, its variables or its arguments, in characters."""

    def __init__(self, total: int = MAX_TEXTS_BYTES) -> None:
        self._left = total

    def take(self, text: str) -> str:
        """Subtract the text's length; returns the text. Raises TooLong."""
        self._left -= len(text) + 1
        if self._left < 0:
            raise TooLong(f"env and args are longer than {MAX_TEXTS_BYTES} bytes together; use a file of a volume")
        return text


def expand(text: str, env: Mapping[str, str]) -> str:
    """`$(NAME)` becomes the variable's value, or stays as it is when there is none; `$$` becomes `$`. Raises TooLong as
    soon as the result is too long: each variable may contain the one before it twice, so that lengths grow
    exponentially."""
    parts: list[str] = []
    end = length = 0
    for reference in _REFERENCE.finditer(text):
        value = "$" if reference[0] == "$$" else env.get(reference[1], reference[0])
        parts += [text[end : reference.start()], value]
        length += len(parts[-2]) + len(value)
        end = reference.end()
        if length > MAX_TEXT_BYTES:
            raise TooLong(f"{text[:40]!r} is longer than {MAX_TEXT_BYTES} bytes after the expansion of its variables")
    parts.append(text[end:])
    return "".join(parts)


def field(pod: Json, path: str) -> str | None:
    """The value of a fieldRef; None for a path that the kubelet does not support either."""
    meta, spec, status = (pod.get(part) or {} for part in ("metadata", "spec", "status"))
    if keyed := _KEYED.match(path):
        return str((meta.get(keyed[1]) or {}).get(keyed[2], ""))
    if path in ("metadata.labels", "metadata.annotations"):
        pairs = meta.get(path.removeprefix("metadata.")) or {}
        return "\n".join(f'{key}="{_quoted(str(pairs[key]))}"' for key in sorted(pairs))
    values = {
        "metadata.name": meta.get("name"),
        "metadata.namespace": meta.get("namespace"),
        "metadata.uid": meta.get("uid"),
        "spec.nodeName": spec.get("nodeName"),
        "spec.serviceAccountName": spec.get("serviceAccountName") or "default",
        "status.podIP": status.get("podIP") or "",
        "status.podIPs": ",".join(address.get("ip", "") for address in status.get("podIPs") or []),
        "status.hostIP": status.get("hostIP") or "",
        "status.hostIPs": status.get("hostIP") or "",
    }
    return str(values[path] or "") if path in values else None


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def resource(container: Json, reference: Json, capacity: Mapping[str, str]) -> str:
    """The value of a resourceFieldRef: that of the container, else the capacity of the node; in units of the divisor,
    rounded up."""
    kind, _, name = str(reference.get("resource") or "").partition(".")
    value = ((container.get("resources") or {}).get(kind) or {}).get(name)
    if value is None and kind == "requests":
        value = ((container.get("resources") or {}).get("limits") or {}).get(name)
    amount = quantities.number(str(value if value is not None else capacity.get(name, "0")))
    divisor = quantities.number(str(reference.get("divisor") or "1")) or 1
    return str(math.ceil(amount / divisor))
