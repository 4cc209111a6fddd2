"""Who may see the page: invitations, sessions and download tickets. Pure but for randomness; the clock is passed in.

There is no cookie: a browser sends the cookies of 127.0.0.1 to every port, so also to the web server of a pod. The
person's link holds an invitation, which is exchanged once for a session; the page keeps the session in localStorage,
which belongs to one port. A session is signed and not stored, so that it is valid again when the cluster is. What it
allows is part of what is signed: two pages of one page server may have different rights.
"""

from __future__ import annotations

import hmac
import secrets
from collections import deque
from collections.abc import Callable
from hashlib import sha256
from typing import Literal

INVITATION_SECONDS = 60.0
SESSION_SECONDS = 12 * 3600.0
TICKET_SECONDS = 30.0
MAX_TRIES = 10  # invitations in TRY_SECONDS that were not valid
TRY_SECONDS = 60.0


Right = Literal["read", "write"]
"""What a session allows: to see the page, or to change jobs on it, too."""
_PURPOSES: dict[Right, str] = {"read": "session", "write": "writing session"}  # of the signatures


class TooManyTries(Exception):
    """More than MAX_TRIES invitations within TRY_SECONDS were not valid."""


class Sessions:
    """`secret` signs sessions; `now` is the wall clock (Unix seconds)."""

    def __init__(self, secret: bytes, now: Callable[[], float]) -> None:
        self._secret, self._now = secret, now
        self._invitations: dict[str, tuple[float, Right]] = {}  # by secret: when it expires, and the session's right
        self._tickets: dict[str, tuple[float, str]] = {}  # by secret: when it expires, and the path that it is for
        self._tries: deque[float] = deque(maxlen=MAX_TRIES)

    @property
    def key(self) -> str:
        """Who has this key may ask for invitations: it is for a file that only the owner of the cluster can read."""
        return self._sign("invitations", "")

    def may_invite(self, key: str) -> bool:
        """Whether this is the key."""
        return hmac.compare_digest(_encode(key), self.key.encode())

    def invite(self, right: Right = "read") -> str:
        """An invitation to a session with that right: it is valid once, for INVITATION_SECONDS."""
        now = self._now()
        self._invitations = {text: value for text, value in self._invitations.items() if value[0] >= now}
        invitation = secrets.token_urlsafe(32)
        self._invitations[invitation] = now + INVITATION_SECONDS, right
        return invitation

    def accept(self, invitation: str) -> str | None:
        """A session in exchange for an invitation; None for one that is not valid (any more). Raises TooManyTries for
        such a one: those of another user keep no owner out."""
        now = self._now()
        expires, right = self._invitations.pop(invitation, (float("-inf"), "read"))
        if expires < now:
            if len(self._tries) == MAX_TRIES and now - self._tries[0] < TRY_SECONDS:
                raise TooManyTries
            self._tries.append(now)
            return None
        end = f"{now + SESSION_SECONDS:.0f}"
        return f"{end}.{self._sign(_PURPOSES[right], end)}"

    def right_of(self, session: str) -> Right | None:
        """What the session allows; None for one that is not valid (any more)."""
        end, _, signature = session.partition(".")
        for right, purpose in _PURPOSES.items():
            if hmac.compare_digest(_encode(signature), self._sign(purpose, end).encode()):
                return right if self._now() < float(end) else None
        return None

    def _sign(self, purpose: str, text: str) -> str:
        return hmac.new(self._secret, _encode(f"{purpose} {text}"), sha256).hexdigest()

    def issue_ticket(self, path: str) -> str:
        """A ticket for one download of `path`, valid for TICKET_SECONDS: a link of a page carries no header."""
        now = self._now()
        self._tickets = {ticket: value for ticket, value in self._tickets.items() if value[0] >= now}
        ticket = secrets.token_urlsafe(24)
        self._tickets[ticket] = (now + TICKET_SECONDS, path)
        return ticket

    def take_ticket(self, ticket: str) -> str | None:
        """The path that the ticket is for; None for one that is not valid (any more)."""
        expires, path = self._tickets.pop(ticket, (float("-inf"), ""))
        return path if expires >= self._now() else None


def _encode(text: str) -> bytes:
    """The bytes of a text from an HTTP header, which need not be UTF-8."""
    return text.encode("utf-8", "surrogateescape")
