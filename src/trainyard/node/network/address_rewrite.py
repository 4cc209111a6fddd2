"""The address rewrite of the shared network: names and addresses in values, arguments and ConfigMaps. Pure.

Rules:
- `name:port`, where the name is a host name of the job, of another pod or of a Service, becomes 127.0.0.1 with a port
  allocated for (namespace, name, port), so that the pod that listens and the pods that connect use the same port.
  The same holds for the clusterIP of a Service. A text that consists of such a name only becomes 127.0.0.1, unless the
  name has letters only (`etcd`), because it may then be an ordinary word.
- A ConfigMap's file that lists hosts with numbers below 1000, one a line, is a hostfile of MPI or a script that prints
  one: the numbers are slots (`worker-0:2`), and the text stays as it is.
- A name in another namespace must be written with its namespace: `etcd-service.elastic-job:2379`.
- `0.0.0.0:port` in a pod that declares this container port becomes the port allocated for the pod's own name, so that
  two pods can listen on the same port number. The same holds for the pod's own address (`status.podIP`), which is that
  of this machine.
- A host and its port in two variables, or two flags, are one such address (host_ports.py).
- All other text stays as it is. A name in a program's code does not resolve."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from trainyard.node.network.directory import DOMAIN
from trainyard.objects import Json, NamespacedName, pod_containers

LOOPBACK = "127.0.0.1"
PortOf = Callable[[str, str, int], int]
"""Returns the port allocated for (namespace, name, port)."""


class NameScope(msgspec.Struct, frozen=True):
    """The names that texts of a pod in `namespace` may contain. `names`: namespace -> host names and Services;
    `subdomains`; `addresses`: clusterIP -> Service; `own`: the pod's own host name and its declared container ports;
    `pod_ip`: the pod's own address."""

    namespace: str
    names: Mapping[str, set[str]]
    subdomains: set[str] = msgspec.field(default_factory=set)
    addresses: Mapping[str, NamespacedName] = msgspec.field(default_factory=dict)
    own: tuple[str, frozenset[int]] = ("", frozenset())
    pod_ip: str = ""


_HOST_LINE = re.compile(r"(?:echo )?[\w.-]+:[0-9]{1,3}")


def is_hostfile(text: str) -> bool:
    """Whether the text is a hostfile with lines `host:slots`, or a script that prints one."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return bool(lines) and all(_HOST_LINE.fullmatch(line) for line in lines)


def declared_ports(pod: Json) -> frozenset[int]:
    """The TCP containerPorts of the pod's containers, init containers left out."""
    return frozenset(
        int(port.get("containerPort") or 0)
        for container, init in pod_containers(pod)
        if not init
        for port in container.get("ports") or []
        if str(port.get("protocol") or "TCP") == "TCP"
    )


def rewriter(scope: NameScope, port_of: PortOf) -> Callable[[str], str]:
    """The rewrite function for the texts of one pod. Names match as whole words, also fully qualified."""
    patterns = [_name_pattern(scope, namespace, names) for namespace, names in scope.names.items()]
    if address := _alternation(set(scope.addresses)):
        patterns.append((rf"(?<![\w.-])({address})", scope.addresses.__getitem__))
    compiled = [
        (re.compile(rf"{name}:([0-9]{{1,5}})(?![0-9])"), re.compile(name), key) for name, key in patterns if name
    ]
    own_hosts = _alternation({"0.0.0.0", "[::]", scope.pod_ip})  # noqa: S104  (matched, not bound)
    listen_address = re.compile(rf"(?<![\w.:\]-])(?:{own_hosts}):([0-9]{{1,5}})(?![0-9])")

    def rewrite(text: str) -> str:
        for name_and_port, whole_text, key in compiled:
            if whole_text.fullmatch(text) and not text.isalpha():
                return LOOPBACK
            text = name_and_port.sub(partial(connected, key), text)
        return listen_address.sub(listening, text) if scope.own[1] else text

    def connected(key: Callable[[str], NamespacedName], match: re.Match[str]) -> str:
        target, number = key(match[1]), int(match[2])
        return f"{LOOPBACK}:{port_of(target.namespace, target.name, number)}" if 0 < number < 65536 else match[0]

    def listening(match: re.Match[str]) -> str:
        host, ports = scope.own
        number = int(match[1])
        return f"{LOOPBACK}:{port_of(scope.namespace, host, number)}" if number in ports else match[0]

    return rewrite


def _name_pattern(known: NameScope, namespace: str, names: set[str]) -> tuple[str, Callable[[str], NamespacedName]]:
    """A pattern for the names of one namespace ("" for none), and the function from a matched name to its key."""
    if not (alternatives := _alternation(names)):
        return "", lambda name: NamespacedName(namespace, name)
    middle = _alternation(known.subdomains)
    subdomain = rf"(?:\.(?:{middle}))?" if middle else ""
    domain = rf"\.{re.escape(namespace)}(?:\.svc(?:\.{re.escape(DOMAIN)})?)?"
    if namespace == known.namespace:
        domain = rf"(?:{domain})?"
    return rf"(?<![\w.-])({alternatives}){subdomain}{domain}\.?", lambda name: NamespacedName(namespace, name)


def _alternation(names: set[str]) -> str:
    return "|".join(re.escape(name) for name in sorted(names - {""}, key=lambda name: (-len(name), name)))
