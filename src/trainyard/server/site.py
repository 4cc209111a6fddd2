"""The context of a request for strategies: time, user, free ClusterIPs, stored objects."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass, field

from trainyard.objects import Json, NamespacedName, decode, format_time
from trainyard.server.log import Entry, Log
from trainyard.server.users import User

SERVICES = ipaddress.ip_network("10.96.0.0/12")


class Addresses:
    """The ClusterIP allocator, which follows the log. Addresses are allocated in order, so that a freed one is not
    reused soon."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._last_offset = 9  # the first addresses are reserved, as in kube-apiserver

    def saw(self, entry: Entry) -> None:
        if entry.store == "services":
            if entry.before:
                self._used.discard(entry.before.fields.get("spec.clusterIP", ""))
            if entry.now:
                self._used.add(entry.now.fields.get("spec.clusterIP", ""))

    def taken(self, address: str) -> bool:
        return address in self._used

    def next(self) -> str:
        """A free address, "" when there is none. The write of the Service marks it as used."""
        size = SERVICES.num_addresses - 2
        for _ in range(size):
            self._last_offset = self._last_offset % size + 1
            address = str(SERVICES[self._last_offset])
            if address not in self._used:
                return address
        return ""


@dataclass(slots=True)
class Site:
    """The context of one request. `now` is its time (seconds since the epoch), `user` the authenticated user.

    `reachable`: there is a TLS listener, so that pods can reach the server and get a token volume.
    """

    now: float
    addresses: Addresses
    log: Log
    user: User
    reachable: bool = False
    whose: Callable[[str], User | None] = lambda token: None
    """The user of a token; None for an invalid token."""
    warnings: list[str] = field(default_factory=list)
    """Warnings for the client of an accepted write."""

    @property
    def stamp(self) -> str:
        """The time of the request in RFC 3339."""
        return format_time(self.now)

    def get(self, store: str, namespace: str, name: str) -> Json | None:
        """A stored object, decoded; None when it does not exist."""
        record = self.log.get(store, NamespacedName(namespace, name))
        return None if record is None else dict(decode(record.body))
