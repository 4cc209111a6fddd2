"""The TLS contexts of clients: every connection to an API server is made with a context of this module.

Rules for this file:
- The chain, the validity and the host name of the server's certificate are checked, as kubectl and client-go check
  them. RFC 5280 demands more, such as a keyUsage of the CA and an authorityKeyIdentifier of each certificate. Python
  3.13 checks this, too (VERIFY_X509_STRICT), and so refuses CAs of EKS, older GKE and MicroK8s: it is turned off. A
  certificate of `ca` that is no root is trusted all the same, as by Go, under every version of Python.
- It imports the standard library only: its test runs under every Python of the machine.
"""

from __future__ import annotations

import ssl
import tempfile
from functools import cache


@cache
def system_context() -> ssl.SSLContext:
    """The context that trusts the system's CAs."""
    return _verifying_context()


def tls_context(ca: bytes = b"", certificate: bytes = b"", insecure: bool = False) -> ssl.SSLContext | None:
    """A TLS context that trusts `ca` (b"": the system's CAs) and has the client certificate with its key; both in PEM.
    `insecure` accepts any server. None when all are unset. Raises ssl.SSLError."""
    if not (ca or certificate or insecure):
        return None
    context = _verifying_context(ca)
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate:
        with tempfile.NamedTemporaryFile() as file:  # mode 0600; ssl loads a client certificate from files only
            file.write(certificate)
            file.flush()
            context.load_cert_chain(file.name)
    return context


def _verifying_context(ca: bytes = b"") -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=ca.decode("ascii", "replace") if ca else None)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
