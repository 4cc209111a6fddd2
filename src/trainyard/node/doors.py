"""Who may ask the node's HTTP face, and how it speaks to them. Other users of this machine can reach loopback, too.

    token          plain HTTP for the embedded API server, which has the node's token
    certificate    TLS for a real API server, which shows a certificate; its common name is one of a few

Rule: who cannot be told from a stranger is one. Without a token, or an authority to judge certificates by, nobody is
let in."""

from __future__ import annotations

import hmac
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from aiohttp import web

API_SERVERS = ("kube-apiserver-kubelet-client", "system:kube-apiserver", "kube-apiserver")
"""What the certificates are called that API servers show to kubelets."""


class Door(Protocol):
    @property
    def secure(self) -> ssl.SSLContext | None:
        """The TLS context to listen with, None for plain HTTP."""

    def refusal(self, request: web.BaseRequest) -> str:
        """Why the one who asks is not let in, "" when he is."""


@dataclass(frozen=True, slots=True)
class TokenDoor:
    """For whoever holds the token."""

    token: str = field(repr=False)
    secure: ssl.SSLContext | None = None

    def refusal(self, request: web.BaseRequest) -> str:
        given = request.headers.get("Authorization", "")
        said = given.encode("utf-8", "surrogateescape")  # as it came, whatever bytes it has
        known = bool(self.token) and hmac.compare_digest(said, f"Bearer {self.token}".encode())
        return "" if known else "Unauthorized"


class CertificateDoor(msgspec.Struct, frozen=True):
    """For whoever shows a certificate of the authority that `secure` trusts, with one of these common names."""

    secure: ssl.SSLContext | None
    names: Iterable[str] = API_SERVERS

    def refusal(self, request: web.BaseRequest) -> str:
        shown = request.get_extra_info("peercert")
        return stranger(shown, self.names)


def stranger(shown: object, names: Iterable[str]) -> str:
    """What is wrong with a certificate as Python's ssl tells it (it has been verified), "" when nothing is."""
    if not isinstance(shown, dict) or not shown:
        return "show the API server's client certificate (its flag --kubelet-client-certificate)"
    called = [str(value) for part in shown.get("subject", ()) for key, value in part if key == "commonName"]
    if not set(called) & set(names):
        known = ", ".join(names)
        return f"a certificate for {', '.join(called) or 'nobody'} is not an API server's; known are: {known}"
    return ""


def secured(context: ssl.SSLContext, authority: bytes) -> ssl.SSLContext:
    """The same context, which judges the certificates that clients show by that authority (PEM), if they show any."""
    context.verify_mode = ssl.CERT_OPTIONAL  # who shows none is refused in words, not by a broken handshake
    if authority:
        context.load_verify_locations(cadata=authority.decode("ascii", "replace"))
    return context
