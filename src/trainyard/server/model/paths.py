"""A parser for the URL paths of the Kubernetes API.

/api/v1/...                 the core group
/apis/GROUP/VERSION/...     all others
... RESOURCE[/NAME[/SUBRESOURCE]]                        cluster-scoped, or all namespaces
... namespaces/NAMESPACE/RESOURCE[/NAME[/SUBRESOURCE]]   in a namespace
... RESOURCE/NAME/proxy/ANYTHING                         a path of the proxied program
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote

OPEN_PATHS = ("/healthz", "/livez", "/readyz", "/version", "/version/")
"""Paths that clients without credentials may read, as in a default cluster."""


class Target(NamedTuple):
    """The request target of a URL. Absent parts are ""."""

    group: str
    version: str
    plural: str
    namespace: str
    name: str
    subresource: str
    proxy_path: str = ""
    """The path after `/proxy`, still percent-encoded; "" when there is no slash after it."""


def parse(path: str) -> Target | None:
    """The target of a raw (percent-encoded) path; None for a non-resource path (discovery, health, unknown)."""
    path, tail = _split_proxy_tail(path)
    parts = path.strip("/").split("/")
    if "%" in path:
        parts = [unquote(part) for part in parts]
    if parts[0] == "api" and len(parts) > 2:
        group, version, segments = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, segments = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    # `namespaces/x/status` is a subresource of the namespace, `namespaces/x/pods` a resource in it.
    if segments[0] == "namespaces" and len(segments) > 2 and not (not group and segments[2] in ("status", "finalize")):
        namespace, segments = segments[1], segments[2:]
    if not all(parts) or not segments or len(segments) > 3:
        return None
    plural, name, subresource = (*segments, "", "")[:3]
    return Target(group, version, plural, namespace, name, subresource, tail)


def _split_proxy_tail(path: str) -> tuple[str, str]:
    """Path and tail: /api/v1/namespaces/N/pods/NAME/proxy ends after its eighth part."""
    parts = path.split("/", 8)
    if len(parts) == 9 and parts[7] == "proxy" and parts[1:4:2] == ["api", "namespaces"]:
        return "/".join(parts[:8]), f"/{parts[8]}"
    return path, ""
