"""Validation of probes, lifecycle hooks and ports."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from trainyard.api_types.validators import NOT_NEGATIVE
from trainyard.objects import Json, Problem
from trainyard.schema.checks import json_text

PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_PROBE_NUMBERS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_HTTP_HEADER = re.compile(r"[-A-Za-z0-9]+")


def probe_problems(container: Json, where: str, grace_period_seconds: int) -> Iterator[Problem]:
    """Problems of a container's probes and hooks. `grace_period_seconds`: the pod's terminationGracePeriodSeconds."""
    for name in PROBES:
        if isinstance(probe := container.get(name), dict):
            yield from _probe(probe, name, f"{where}.{name}")
    for name, hook in (container.get("lifecycle") or {}).items():
        if isinstance(hook, dict):
            yield from _handler(hook, f"{where}.lifecycle.{name}", grace_period_seconds)


def forbidden_problems(container: Json, where: str) -> Iterator[Problem]:
    """Problems of an init container with probes or hooks: only sidecars may have them."""
    for name in (*PROBES, "lifecycle"):
        if container.get(name) is not None:
            text = "Forbidden: may not be set for init containers without restartPolicy=Always"
            yield Problem(f"{where}.{name}", text)


def _probe(probe: Json, name: str, where: str) -> Iterator[Problem]:
    yield from _handler(probe, where)
    for field in _PROBE_NUMBERS:
        if (probe.get(field) or 0) < 0:
            yield Problem(f"{where}.{field}", f"Invalid value: {probe[field]}: {NOT_NEGATIVE}")
    grace = probe.get("terminationGracePeriodSeconds")
    if grace is not None and grace < 1:
        yield Problem(f"{where}.terminationGracePeriodSeconds", f"Invalid value: {grace}: must be greater than 0")
    if name == "readinessProbe":
        if grace is not None:
            text = f"Invalid value: {grace}: must not be set for readinessProbes"
            yield Problem(f"{where}.terminationGracePeriodSeconds", text)
    elif (success_threshold := probe.get("successThreshold")) != 1:
        yield Problem(f"{where}.successThreshold", f"Invalid value: {success_threshold}: must be 1")


def _handler(handler: Json, where: str, grace: int | None = None) -> Iterator[Problem]:
    """Problems of the handler of a probe or hook, which must have exactly one type. `grace_period_seconds`, for hooks:
    the longest sleep in seconds."""
    kinds = [kind for kind in _HANDLERS if isinstance(handler.get(kind), dict)]
    for extra in kinds[1:]:
        yield Problem(f"{where}.{extra}", "Forbidden: may not specify more than 1 handler type")
    if not kinds:
        yield Problem(where, "Required value: must specify a handler type")
        return
    settings, here = handler[kinds[0]], f"{where}.{kinds[0]}"
    if kinds[0] == "exec":
        if not settings.get("command"):
            yield Problem(f"{here}.command", "Required value")
    elif kinds[0] == "sleep":
        if grace is not None and not 0 <= (settings.get("seconds") or 0) <= grace:
            text = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
            yield Problem(here, f"Invalid value: {settings.get('seconds')}: {text}")
    else:
        yield from port_problems(settings.get("port", 0), f"{here}.port")
    if kinds[0] == "httpGet":
        for header in settings.get("httpHeaders") or ():
            if not _HTTP_HEADER.fullmatch(name := header.get("name") or ""):
                text = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name')"
                yield Problem(f"{here}.httpHeaders", f"Invalid value: {json_text(name)}: {text}")


def port_problems(port: Any, path: str) -> Iterator[Problem]:
    """Problems of a port: a number or a name."""
    if isinstance(port, str):
        yield from port_name_problems(port, path)
    elif not 0 < port < 65536:
        yield Problem(path, f"Invalid value: {port}: must be between 1 and 65535, inclusive")


def port_name_problems(name: str, path: str) -> Iterator[Problem]:
    """The problems of a port's name (IANA service name)."""
    if len(name) > 15:
        yield Problem(path, f"Invalid value: {json_text(name)}: must be no more than 15 characters")
    if not re.fullmatch("[-a-z0-9]+", name):
        text = "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"
        yield Problem(path, f"Invalid value: {json_text(name)}: {text}")
    if not re.search("[a-z]", name):
        yield Problem(path, f"Invalid value: {json_text(name)}: must contain at least one letter (a-z)")
    if "--" in name:
        yield Problem(path, f"Invalid value: {json_text(name)}: must not contain consecutive hyphens")
    if name[:1] == "-" or name[-1:] == "-":
        yield Problem(path, f"Invalid value: {json_text(name)}: must not begin or end with a hyphen")
