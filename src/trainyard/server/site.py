"""What a strategy may ask of the server while it fills in an object: the time, a free address, who writes, what is."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass, field

from trainyard.objects import Json, Key, decode, format_time
from trainyard.server.log import Entry, Log
from trainyard.server.users import User

SERVICES = ipaddress.ip_network("10.96.0.0/12")


class Addresses:
    """ClusterIPs in use, read from the log's entries. Addresses are given out in order, so one just freed rests."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._last = 9  # the first few are left free, as a real cluster keeps them for itself

    def saw(self, entry: Entry) -> None:
        if entry.store == "services":
            if entry.before:
                self._used.discard(entry.before.fields.get("spec.clusterIP", ""))
            if entry.now:
                self._used.add(entry.now.fields.get("spec.clusterIP", ""))

    def taken(self, address: str) -> bool:
        return address in self._used

    def next(self) -> str:
        """A free address, "" when there is none. The caller's write takes it."""
        size = SERVICES.num_addresses - 2
        for _ in range(size):
            self._last = self._last % size + 1
            address = str(SERVICES[self._last])
            if address not in self._used:
                return address
        return ""


@dataclass(slots=True)
class Site:
    """`now` is the time of the request, `user` is who asks.

    `reachable` says that pods can reach this server: there is a TLS listener. Then they get a token.
    """

    now: float
    addresses: Addresses
    log: Log
    user: User
    reachable: bool = False
    whose: Callable[[str], User | None] = lambda token: None
    """Whose token that is, None when it is nobody's."""
    warnings: list[str] = field(default_factory=list)
    """What the person who writes should hear although the write is accepted."""

    @property
    def stamp(self) -> str:
        """The time of the request as the API writes it."""
        return format_time(self.now)

    def get(self, store: str, namespace: str, name: str) -> Json | None:
        """An object as it is stored, None when there is none."""
        record = self.log.get(store, Key(namespace, name))
        return None if record is None else dict(decode(record.body))
