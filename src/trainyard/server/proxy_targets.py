"""Which program a path with `/proxy` means: `pods/NAME[:PORT]/proxy/...`, `services/NAME[:PORT]/proxy/...`.

Rules for this file:
- As in a real cluster: a pod without a port means its first container port, or 80; a Service's port is one of its own,
  by number or by name, and may be left out only where it has no name. `https:NAME:PORT` speaks TLS to the program.
- A Service leads to one of its pods that are ready, chosen at random.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from trainyard.objects import Json, decode, is_true, labels_of, name_of
from trainyard.objects.labels import matches
from trainyard.server import errors
from trainyard.server.log import Log

PODS = "pods"
LONGEST = 512  # characters: a name has up to 253, and a port of thousands of digits is no number to Python


class Program(NamedTuple):
    """A port of a pod, and whether it speaks TLS."""

    pod: Json
    port: int
    secure: bool = False


class Name(NamedTuple):
    scheme: str
    name: str
    port: str


def split(text: str, kind: str) -> Name:
    """NAME, NAME:PORT or SCHEME:NAME:PORT. Raises Refused 400."""
    parts = text.split(":")
    if len(parts) == 3 and parts[0] in ("http", "https", "") and len(text) <= LONGEST:
        return Name(*parts)
    if len(parts) > 2 or not parts[0] or len(text) > LONGEST:
        raise errors.bad_request(f'invalid {kind} request "{errors.printable(text)}"')
    return Name("", *(parts if len(parts) == 2 else (parts[0], "")))


def of_pod(pod: Json, wanted: Name) -> Program:
    """Raises Refused 400 for a port that is no number."""
    port = wanted.port
    if not port:
        containers = (pod.get("spec") or {}).get("containers") or ()
        listed = [one.get("containerPort") for container in containers for one in container.get("ports") or ()]
        port = str(next((one for one in listed if one), 80))
    return Program(pod, _number(port, name_of(pod)), wanted.scheme == "https")


def of_service(log: Log, service: Json, wanted: Name) -> Program:
    """Raises Refused 503 when nobody is behind it."""
    name = name_of(service)
    ports = [one for one in (service.get("spec") or {}).get("ports") or () if isinstance(one, dict)]
    if wanted.port.isdecimal():
        found = next((one for one in ports if one.get("port") == int(wanted.port)), None)
        if found is None:
            raise _unavailable(f'no service port {wanted.port} found for service "{name}"')
    else:
        found = next((one for one in ports if (one.get("name") or "") == wanted.port), None)
    if found is None:
        known = ", ".join(str(one.get("name") or one.get("port")) for one in ports) or "none"
        asked = f" for the port {wanted.port!r}" if wanted.port else ""
        text = f"no endpoints available for service {name!r}{asked}; its ports: {known} (write services/{name}:PORT)"
        raise _unavailable(errors.printable(text).replace("'", '"'))
    behind = [(pod, number) for pod in _ready(log, service) if (number := _target(pod, found))]
    if not behind:
        raise _unavailable(f'no endpoints available for service "{name}"')
    pod, number = random.choice(behind)
    return Program(pod, number, wanted.scheme == "https")


def _ready(log: Log, service: Json) -> list[Json]:
    """The pods that the Service selects and that are ready, or all where it says so."""
    spec = service.get("spec") or {}
    selector = spec.get("selector") or {}
    found = []
    for key, record in log.list(PODS):
        if not selector or key.namespace != service["metadata"].get("namespace"):
            continue
        pod: Json = decode(record.body)
        ready = is_true((pod.get("status") or {}).get("conditions"), "Ready") or spec.get("publishNotReadyAddresses")
        if ready and matches(selector, labels_of(pod)):
            found.append(pod)
    return found


def _target(pod: Json, port: Json) -> int:
    """The number of a Service's port in that pod, 0 when it has no such port."""
    target = port.get("targetPort") or port.get("port")
    if isinstance(target, int):
        return target
    containers = (pod.get("spec") or {}).get("containers") or ()
    listed = [one for container in containers for one in container.get("ports") or ()]
    return next((int(one.get("containerPort") or 0) for one in listed if one.get("name") == target), 0)


def _number(port: str, name: str) -> int:
    if not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise errors.bad_request(
            f"pods/{name}: the port must be a number from 1 to 65535, not {errors.printable(port)}"
        )
    return int(port)


def _unavailable(text: str) -> errors.Refused:
    return errors.Refused(503, "ServiceUnavailable", text)
