"""What the last lines of a program's output speak of. A table: what is seen, what it means, what helps."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple


class Sign(NamedTuple):
    """`name` stands for a matched word in both texts."""

    pattern: re.Pattern[str]
    what: str
    fix: str


def _sign(pattern: str, what: str, fix: str) -> Sign:
    return Sign(re.compile(pattern, re.IGNORECASE), what, fix)


SIGNS = (
    _sign(
        r"EtcdConnectionFailed|Could not get the list of servers, maybe"
        r"|etcd.*(?:connection (?:failed|refused)|unreachable|no more machines)",
        "it cannot reach the etcd of its rendezvous",
        "start etcd, and check that the rendezvous endpoint of the spec names it with its port",
    ),
    _sign(
        r"RendezvousTimeout|rendezvous.*timed? ?out|RendezvousClosed|rendezvous.*closed",
        "its rendezvous did not fill in time, or is closed",
        "see that at least the minimum of replicas runs; a closed rendezvous needs a new job (or suspend and resume)",
    ),
    _sign(
        r"RendezvousConnectionError|rendezvous.*(?:connection|connect to)",
        "it cannot reach its rendezvous",
        "check that the rendezvous endpoint of the spec names a Service or address that answers",
    ),
    _sign(
        r"name or service not known|temporary failure in name resolution|getaddrinfo|nodename nor servname"
        r"|could not resolve host|no such host|unable to resolve",
        "a host name cannot be resolved",
        "check the name: a Service must exist in the same namespace, or be written NAME.NAMESPACE",
    ),
    _sign(
        r"connection refused|ECONNREFUSED|failed to connect to all addresses",
        "somebody it needs does not answer (connection refused)",
        "see that the other replica, or the service it connects to, runs and listens on that port",
    ),
    _sign(
        r"(?:ModuleNotFoundError|ImportError): No module named '?([\w.]+)",
        "its image has no Python module {name}",
        "install {name} into the image; on this machine, add it to the image's entry in your catalogue (--images)",
    ),
    _sign(
        r"can't open file '?([^':]+)'?: \[Errno 2\]|([^\s:]+): (?:not found|No such file or directory)$",
        "the file {name} is not there",
        "check command, args and workingDir, and that the image or a volume holds the file",
    ),
    _sign(
        r"CUDA out of memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation",
        "its GPU has too little memory",
        "lower the batch size, or give it a larger GPU",
    ),
    _sign(
        r"no CUDA-capable device|CUDA driver version is insufficient|Found no NVIDIA driver",
        "there is no GPU it can use",
        "ask for one (resources.limits: nvidia.com/gpu) where the cluster has them, or run it on CPUs",
    ),
    _sign(r"MemoryError\b|std::bad_alloc|Cannot allocate memory", "it ran out of memory", "raise its memory limit"),
    _sign(
        r"No space left on device|Errno 28",
        "a disk is full",
        "free some space, or mount a larger volume where it writes",
    ),
    _sign(
        r"Permission denied|Errno 13\b",
        "it may not do that (permission denied)",
        "check the rights of the file, and runAsUser",
    ),
    _sign(
        r"Address already in use|Errno 98\b",
        "its port is taken",
        "give it another port, or end the program that has this one",
    ),
    _sign(
        r"\bORTE\b|mpi(?:run|exec)\b.*(?:unable|failed)|Permission denied \(publickey",
        "MPI could not start its processes on the workers",
        "see that every worker runs, and that the job's Role grants pods/exec",
    ),
)


def sign_of(lines: Iterable[str]) -> tuple[str, str] | None:
    """What the last telling line means, and what helps."""
    for line in reversed(tuple(lines)):
        for sign in SIGNS:
            if found := sign.pattern.search(line):
                name = next((group for group in found.groups() if group), "")
                return sign.what.replace("{name}", name), sign.fix.replace("{name}", name)
    return None
