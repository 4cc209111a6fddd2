"""The context of a request for strategies: time, user, free ClusterIPs, stored objects."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable

import msgspec

from trainyard.objects import Json, NamespacedName, decode, format_time
from trainyard.server.model.store import LogEntry, ObjectReader
from trainyard.server.model.users import User

SERVICES = ipaddress.ip_network("10.96.0.0/12")


class ClusterIPAllocator:
    """The ClusterIP allocator, which follows the log. Addresses are allocated in order, so that a freed one is not
    reused soon."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._last_offset = 9  # the first addresses are reserved, as in kube-apiserver

    def on_entry(self, entry: LogEntry) -> None:
        """Follow the log: keeps the addresses of all Services."""
        if entry.store == "services":
            if entry.previous:
                self._used.discard(entry.previous.fields.get("spec.clusterIP", ""))
            if entry.record:
                self._used.add(entry.record.fields.get("spec.clusterIP", ""))

    def is_allocated(self, address: str) -> bool:
        """Whether a Service has this clusterIP."""
        return address in self._used

    def allocate(self) -> str:
        """A free address, "" when there is none. The write of the Service marks it as used."""
        size = SERVICES.num_addresses - 2
        for _ in range(size):
            self._last_offset = self._last_offset % size + 1
            address = str(SERVICES[self._last_offset])
            if address not in self._used:
                return address
        return ""


class RequestContext(msgspec.Struct):
    """The context of one request. `now` is its time (seconds since the epoch), `user` the authenticated user.

    `reachable`: there is a TLS listener, so that pods can reach the server and get a token volume.
    """

    now: float
    addresses: ClusterIPAllocator
    log: ObjectReader
    user: User
    reachable: bool = False
    user_of_token: Callable[[str], User | None] = lambda token: None
    """The user of a token; None for an invalid token."""

    @property
    def timestamp(self) -> str:
        """The time of the request in RFC 3339."""
        return format_time(self.now)

    def get(self, store: str, namespace: str, name: str) -> Json | None:
        """A stored object, decoded; None when it does not exist."""
        record = self.log.get(store, NamespacedName(namespace, name))
        return None if record is None else dict(decode(record.body))
