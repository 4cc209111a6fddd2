"""The outcome of one run of a probe, and what the probes by network share: the connection, and the kubelet's texts."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import NamedTuple

from trainyard.node.network.proxy import Streams

PROBE_USER_AGENT, HOOK_USER_AGENT = "kube-probe/1.37", "kube-lifecycle/1.37"

Dial = Callable[[str, int], Awaitable[Streams]]
"""Connects to a host and port. Raises OSError."""


class Verdict(StrEnum):
    """What a probe says about its container. WARNED passes; ERRORED says nothing: the probe could not be run."""

    PASSED = "passed"
    WARNED = "warned"
    FAILED = "failed"
    ERRORED = "errored"


class Outcome(NamedTuple):
    """A verdict, with the text of its event."""

    verdict: Verdict
    text: str = ""

    @property
    def passed(self) -> bool | None:
        """Whether the probe has passed; None if it could not be run."""
        return None if self.verdict is Verdict.ERRORED else self.verdict in (Verdict.PASSED, Verdict.WARNED)


class ConnectError(Exception):
    """A probe could not connect; the message is the kubelet's."""


async def connect(dial: Dial, host: str, port: int) -> Streams:
    """Connect to a host and port. Raises ConnectError."""
    try:
        return await dial(host, port)
    except socket.gaierror as error:
        raise ConnectError(f"dial tcp: lookup {host}: {error.strerror}") from None
    except OSError as error:
        raise ConnectError(f"dial tcp {address_of(host, port)}: connect: {reason_of(error)}") from None


def address_of(host: str, port: int) -> str:
    """`host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def reason_of(error: Exception) -> str:
    """The reason in the words of the C library, in lower case as Go prints it: `connection refused`."""
    if isinstance(error, ssl.SSLError):
        return f"tls: {error.reason or error}"
    code = error.errno if isinstance(error, OSError) else None
    return os.strerror(code).lower() if code else str(error) or type(error).__name__
