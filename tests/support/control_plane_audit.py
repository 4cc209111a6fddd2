"""What was asked of the API server, by whom: its audit log, counted.

Rules:
- A request is one line with its identifier, whoever answered it. A watch counts when it begins, not when it ends.
- The API server writes after it has answered. `since` asks a question of its own and reads until that one is written.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from trainyard.objects import Json, decode

READS = frozenset({"get", "list", "watch"})
BLOCK = 64 * 1024  # bytes read at a time from the end of the log


@dataclass(frozen=True, slots=True)
class AuditedRequest:
    """One request."""

    user: str
    verb: str
    resource: str  # with its subresource, `pods/status`; the path, for what is no resource
    group: str
    namespace: str
    name: str
    code: int
    allowed: bool
    agent: str

    @property
    def right(self) -> tuple[str, str]:
        """The pair that a rule of RBAC would have to name: (resource, verb)."""
        return (f"{self.resource}.{self.group}" if self.group else self.resource), self.verb


class Audit:
    """The log of one API server. `ask` sends it a request with the given path, for `settled`."""

    def __init__(self, path: Path, ask: Callable[[str], object], wait: Callable[[Callable[[], bool], str], None]):
        self._path, self._ask, self._wait = path, ask, wait
        self._marks = 0

    def mark(self) -> int:
        """The end of the log now, between two lines. Every request answered before this call is written before it."""
        self._marks += 1
        sign = f"/version?mark={self._marks}"
        start = self._end()
        self._ask(sign)
        self._wait(lambda: any(line.get("requestURI") == sign for line in self._lines(start)), "the audit log goes on")
        return self._end()

    def since(self, mark: int = 0) -> list[AuditedRequest]:
        """Every request after the mark, in the order of the log; our own questions left out."""
        until = self.mark()
        known_ids: set[str] = set()
        requests = []
        for line in self._lines(mark, until):
            if line["auditID"] not in known_ids and not str(line["requestURI"]).startswith("/version?mark="):
                known_ids.add(line["auditID"])
                requests.append(_asked(line))
        return requests

    def _end(self) -> int:
        """The byte after the last whole line: the server may be in the middle of writing the next."""
        if not self._path.exists():
            return 0
        with self._path.open("rb") as log:
            place = log.seek(0, os.SEEK_END)
            while place:
                start = max(place - BLOCK, 0)
                log.seek(start)
                newline = log.read(place - start).rfind(b"\n")
                if newline >= 0:
                    return start + newline + 1
                place = start
        return 0

    def _lines(self, start: int, until: int = -1) -> Iterator[Json]:
        """Whole lines only: the last one may be half written."""
        with self._path.open("rb") as log:
            log.seek(start)
            for line in log:
                if line.endswith(b"\n") and (until < 0 or start < until):
                    start += len(line)
                    yield decode(line)


def counted(requests: Iterable[AuditedRequest]) -> Counter[tuple[str, str, str]]:
    """How many by (user, verb, resource)."""
    return Counter((request.user, request.verb, request.resource) for request in requests)


def of(user: str, requests: Iterable[AuditedRequest]) -> list[AuditedRequest]:
    return [request for request in requests if request.user == user]


def _asked(line: Json) -> AuditedRequest:
    to = line.get("objectRef") or {}
    resource = "/".join(filter(None, (to.get("resource"), to.get("subresource"))))
    decision = (line.get("annotations") or {}).get("authorization.k8s.io/decision")
    return AuditedRequest(
        user=line["user"].get("username", ""),
        verb=line["verb"],
        resource=resource or str(line["requestURI"]).partition("?")[0],
        group=to.get("apiGroup", ""),
        namespace=to.get("namespace", ""),
        name=to.get("name", ""),
        code=(line.get("responseStatus") or {}).get("code", 0),
        allowed=decision == "allow",
        agent=line.get("userAgent", ""),
    )
