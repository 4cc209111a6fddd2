"""Resolves the targets of proxy paths: `pods/NAME[:PORT]/proxy/...`, `services/NAME[:PORT]/proxy/...`.

Rules for this file:
- As in kube-apiserver: for a pod the default port is its first container port, or 80; for a Service it is one of the
  Service's ports, by number or by name, and may be omitted only for an unnamed port. `https:NAME:PORT` uses TLS.
- A Service resolves to one of its ready pods, chosen at random.
"""

from __future__ import annotations

import random

from trainyard.objects import Json, decode, is_condition_true, labels_of, name_of
from trainyard.objects.labels import matches_labels
from trainyard.server.model import errors
from trainyard.server.model.resources import PodPort, ProxyName
from trainyard.server.model.store import ObjectReader

PODS = "pods"
LONGEST = 512  # characters: a name has up to 253; int() refuses a port with thousands of digits


def split(text: str, kind: str) -> ProxyName:
    """NAME, NAME:PORT or SCHEME:NAME:PORT. Raises StatusError 400."""
    parts = text.split(":")
    if len(parts) == 3 and parts[0] in ("http", "https", "") and len(text) <= LONGEST:
        return ProxyName(*parts)
    if len(parts) > 2 or not parts[0] or len(text) > LONGEST:
        raise errors.bad_request(f'invalid {kind} request "{errors.printable(text)}"')
    return ProxyName("", *(parts if len(parts) == 2 else (parts[0], "")))


def port_of_pod(log: ObjectReader, pod: Json, requested: ProxyName) -> PodPort:
    """The requested port of a pod, by default its first container port or 80. Raises StatusError 400 for a port that is
    no number."""
    port = requested.port
    if not port:
        containers = (pod.get("spec") or {}).get("containers") or ()
        port_numbers = [
            port_number.get("containerPort") for container in containers for port_number in container.get("ports") or ()
        ]
        port = str(next((port_number for port_number in port_numbers if port_number), 80))
    return PodPort(pod, _number(port, name_of(pod)), requested.scheme == "https")


def port_of_service(log: ObjectReader, service: Json, requested: ProxyName) -> PodPort:
    """The pod port behind a Service port, of a ready pod chosen at random. Raises StatusError 503 when there is no such
    port or no ready pod."""
    name = name_of(service)
    ports = [candidate for candidate in (service.get("spec") or {}).get("ports") or () if isinstance(candidate, dict)]
    if requested.port.isdecimal():
        service_port = next((candidate for candidate in ports if candidate.get("port") == int(requested.port)), None)
        if service_port is None:
            raise _unavailable(f'no service port {requested.port} found for service "{name}"')
    else:
        service_port = next((candidate for candidate in ports if (candidate.get("name") or "") == requested.port), None)
    if service_port is None:
        served = ", ".join(str(candidate.get("name") or candidate.get("port")) for candidate in ports) or "none"
        suffix = f" for the port {requested.port!r}" if requested.port else ""
        text = f"no endpoints available for service {name!r}{suffix}; its ports: {served} (write services/{name}:PORT)"
        raise _unavailable(errors.printable(text).replace("'", '"'))
    endpoints = [
        (pod, port_number) for pod in _ready_pods(log, service) if (port_number := _target_port(pod, service_port))
    ]
    if not endpoints:
        raise _unavailable(f'no endpoints available for service "{name}"')
    pod, port_number = random.choice(endpoints)
    return PodPort(pod, port_number, requested.scheme == "https")


def _ready_pods(log: ObjectReader, service: Json) -> list[Json]:
    """The ready pods that the Service selects; with publishNotReadyAddresses all that it selects."""
    spec = service.get("spec") or {}
    selector = spec.get("selector") or {}
    pods = []
    for key, record in log.list(PODS):
        if not selector or key.namespace != service["metadata"].get("namespace"):
            continue
        pod: Json = decode(record.body)
        ready = is_condition_true((pod.get("status") or {}).get("conditions"), "Ready") or spec.get(
            "publishNotReadyAddresses"
        )
        if ready and matches_labels(selector, labels_of(pod)):
            pods.append(pod)
    return pods


def _target_port(pod: Json, port: Json) -> int:
    """The number of a Service's port in that pod, 0 when it has no such port."""
    target = port.get("targetPort") or port.get("port")
    if isinstance(target, int):
        return target
    containers = (pod.get("spec") or {}).get("containers") or ()
    port_entries = [port_entry for container in containers for port_entry in container.get("ports") or ()]
    return next(
        (int(port_entry.get("containerPort") or 0) for port_entry in port_entries if port_entry.get("name") == target),
        0,
    )


def _number(port: str, name: str) -> int:
    if not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise errors.bad_request(
            f"pods/{name}: the port must be a number from 1 to 65535, not {errors.printable(port)}"
        )
    return int(port)


def _unavailable(text: str) -> errors.StatusError:
    return errors.StatusError(503, "ServiceUnavailable", text)
