"""The Kubernetes URL grammar, by hand: it is regular.

/api/v1/...                 the core group
/apis/GROUP/VERSION/...     all others
... RESOURCE[/NAME[/SUBRESOURCE]]                        cluster-scoped, or all namespaces
... namespaces/NAMESPACE/RESOURCE[/NAME[/SUBRESOURCE]]   in a namespace
... RESOURCE/NAME/proxy/ANYTHING                         a path of the program behind it
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote


class Target(NamedTuple):
    """What a URL points at. Empty where it says nothing."""

    group: str
    version: str
    plural: str
    namespace: str
    name: str
    subresource: str
    tail: str = ""
    """What comes after `/proxy`, still quoted: a path of the program behind it, "" when there is not even a slash."""


def parse(path: str) -> Target | None:
    """The target of a raw (still quoted) path, None when the path is not about objects (discovery, health, nothing)."""
    path, tail = _cut(path)
    parts = path.strip("/").split("/")
    if "%" in path:
        parts = [unquote(part) for part in parts]
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    # `namespaces/x/status` is the namespace's own subresource, `namespaces/x/pods` is a place.
    if rest[0] == "namespaces" and len(rest) > 2 and not (not group and rest[2] in ("status", "finalize")):
        namespace, rest = rest[1], rest[2:]
    if not all(parts) or not rest or len(rest) > 3:
        return None
    plural, name, subresource = (*rest, "", "")[:3]
    return Target(group, version, plural, namespace, name, subresource, tail)


def _cut(path: str) -> tuple[str, str]:
    """Path and tail: /api/v1/namespaces/N/pods/NAME/proxy ends after its eighth part."""
    parts = path.split("/", 8)
    if len(parts) == 9 and parts[7] == "proxy" and parts[1:4:2] == ["api", "namespaces"]:
        return "/".join(parts[:8]), f"/{parts[8]}"
    return path, ""
