"""Authentication of clients of the node's kubelet API: other users of this machine can connect to loopback, too.

    token          plain HTTP for the embedded API server, which has the node's bearer token
    certificate    TLS for a real API server with a client certificate, whose common name must be in a list

Rule: a client that cannot be authenticated is refused. Without a token, or a CA for client certificates, every request
is refused."""

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
"""Common names of the client certificates that API servers use for kubelets."""


class ClientAuthenticator(Protocol):
    """Decides which clients the node's HTTP server answers."""

    @property
    def ssl_context(self) -> ssl.SSLContext | None:
        """The TLS context to listen with, None for plain HTTP."""

    def refusal(self, request: web.BaseRequest) -> str:
        """Why the request is refused, "" when it is allowed."""


@dataclass(frozen=True, slots=True)
class TokenAuthenticator:
    """Allows requests with the bearer token."""

    token: str = field(repr=False)
    ssl_context: ssl.SSLContext | None = None

    def refusal(self, request: web.BaseRequest) -> str:
        """`Unauthorized` when the Authorization header is not the token; "" when it is."""
        header = request.headers.get("Authorization", "")
        credentials = header.encode("utf-8", "surrogateescape")  # the header's bytes as received, also invalid UTF-8
        matches = bool(self.token) and hmac.compare_digest(credentials, f"Bearer {self.token}".encode())
        return "" if matches else "Unauthorized"


class CertificateAuthenticator(msgspec.Struct, frozen=True):
    """Allows clients with a certificate of the CA that `ssl_context` trusts, with one of these common names."""

    ssl_context: ssl.SSLContext | None
    names: Iterable[str] = API_SERVERS

    def refusal(self, request: web.BaseRequest) -> str:
        """Why the client's TLS certificate is refused, "" when it is accepted."""
        certificate = request.get_extra_info("peercert")
        return certificate_refusal(certificate, self.names)


def certificate_refusal(certificate: object, names: Iterable[str]) -> str:
    """Why a client certificate (verified, as from `SSLSocket.getpeercert`) is refused, "" when it is allowed."""
    if not isinstance(certificate, dict) or not certificate:
        return "show the API server's client certificate (its flag --kubelet-client-certificate)"
    common_names = [str(value) for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    if not set(common_names) & set(names):
        accepted = ", ".join(names)
        return f"a certificate for {', '.join(common_names) or 'nobody'} is not an API server's; known are: {accepted}"
    return ""


def with_client_ca(context: ssl.SSLContext, ca: bytes) -> ssl.SSLContext:
    """The same context, changed to verify client certificates with the CA certificates `ca` (PEM)."""
    context.verify_mode = ssl.CERT_OPTIONAL  # a client without one gets a 401 with a message, not a failed handshake
    if ca:
        context.load_verify_locations(cadata=ca.decode("ascii", "replace"))
    return context
