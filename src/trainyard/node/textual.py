"""The NAT by text of the shared network: what becomes of names and addresses in values, arguments and ConfigMaps. Pure.

Rules:
- `name:port`, where the name is one of the job's host names, of another pod's or of a Service's, becomes 127.0.0.1 and
  a port of its own: one per (namespace, name, port), so that the pod that listens there and those that connect agree.
  The same for a Service's own address. A text that is nothing but such a name becomes 127.0.0.1, unless the name may
  as well be an ordinary word (`etcd`): then it has neither dash nor dot nor digit.
- Of another namespace a name is known with its namespace: `etcd-service.elastic-job:2379`.
- A pod that listens on `0.0.0.0:port`, and declares that container port, listens on the port of its own name: two pods
  that listen on one number do not get into each other's way.
- A host and its port in two variables, or two flags, are one such address (host_ports.py).
- Everything else stays as it is. A name buried in a program's code does not resolve."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from trainyard.node.names import DOMAIN
from trainyard.node.pods import containers
from trainyard.objects import Json, Key

LOOPBACK = "127.0.0.1"
PortOf = Callable[[str, str, int], int]
"""The port that stands for (namespace, name, port)."""


class Known(msgspec.Struct, frozen=True):
    """What a pod in `namespace` may mean: host names and Services by namespace, subdomains, addresses of Services; and
    of itself its host name and the ports it declares."""

    namespace: str
    names: Mapping[str, set[str]]
    subdomains: set[str] = msgspec.field(default_factory=set)
    addresses: Mapping[str, Key] = msgspec.field(default_factory=dict)
    own: tuple[str, frozenset[int]] = ("", frozenset())


def declared_ports(pod: Json) -> frozenset[int]:
    return frozenset(
        int(port.get("containerPort") or 0)
        for one, init in containers(pod)
        if not init
        for port in one.get("ports") or []
        if str(port.get("protocol") or "TCP") == "TCP"
    )


def rewriter(known: Known, port_of: PortOf) -> Callable[[str], str]:
    """The NAT for one pod. Names are found as whole words, also fully qualified."""
    places = [_names(known, namespace, names) for namespace, names in known.names.items()]
    if address := _any_of(set(known.addresses)):
        places.append((rf"(?<![\w.-])({address})", known.addresses.__getitem__))
    found = [(re.compile(rf"{name}:([0-9]{{1,5}})(?![0-9])"), re.compile(name), key) for name, key in places if name]
    listens = re.compile(r"(?<![\w.:\]-])(?:0\.0\.0\.0|\[::\]):([0-9]{1,5})(?![0-9])")

    def rewrite(text: str) -> str:
        for pair, alone, key in found:
            if alone.fullmatch(text) and not text.isalpha():
                return LOOPBACK
            text = pair.sub(partial(connected, key), text)
        return listens.sub(listening, text) if known.own[1] else text

    def connected(key: Callable[[str], Key], match: re.Match[str]) -> str:
        meant, number = key(match[1]), int(match[2])
        return f"{LOOPBACK}:{port_of(meant.namespace, meant.name, number)}" if 0 < number < 65536 else match[0]

    def listening(match: re.Match[str]) -> str:
        host, ports = known.own
        number = int(match[1])
        return f"{LOOPBACK}:{port_of(known.namespace, host, number)}" if number in ports else match[0]

    return rewrite


def _names(known: Known, namespace: str, names: set[str]) -> tuple[str, Callable[[str], Key]]:
    """A pattern for the names of one namespace, and what a name means."""
    if not (alternatives := _any_of(names)):
        return "", lambda name: Key(namespace, name)
    middle = _any_of(known.subdomains)
    inside = rf"(?:\.(?:{middle}))?" if middle else ""
    tail = rf"\.{re.escape(namespace)}(?:\.svc(?:\.{re.escape(DOMAIN)})?)?"
    if namespace == known.namespace:
        tail = rf"(?:{tail})?"
    return rf"(?<![\w.-])({alternatives}){inside}{tail}\.?", lambda name: Key(namespace, name)


def _any_of(names: set[str]) -> str:
    return "|".join(re.escape(name) for name in sorted(names - {""}, key=lambda name: (-len(name), name)))
