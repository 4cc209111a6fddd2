"""What `trainyard why` knows of torchrun, for the kinds that start it: its output, its rendezvous."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.core import Job
from trainyard.core.diagnosis import (
    BLOCK,
    WAIT,
    Cause,
    Endpoint,
    Finding,
    LauncherOutput,
    ObservedReplicas,
    OutputPattern,
)
from trainyard.objects import Json, namespace_of

KERNEL_LOG_FIX = (
    "if nobody killed it, the machine may have run out of memory: see the kernel log, `dmesg | grep -i oom`"
)
NATIVE_CRASH_FIX = "set PYTHONFAULTHANDLER=1 in its env to see where, then check the versions of its native libraries"
# Of the process that ended first: the failures before that in the summary are of those that torchrun stopped then.
_KILLED_FIRST = (
    r"Root Cause \(first[^\n]*(?:\n[^\n]*){0,4}?"
    r"\n +rank *: (?P<rank>\d+) [^\n]*\n +exitcode *: -9 \(pid: (?P<pid>\d+)\)"
)
TORCHRUN = LauncherOutput(
    files=r"/torch/distributed/(?:run|launch|launcher/\w+|elastic/agent/[\w/]+)\.py$|/torchelastic/|/bin/torchrun$",
    lines=(
        r"^(?:[A-Z]+:|\[[^\]]*\] ?|[IWE]\d{4} [^\]]* )torch[./]distributed[./]|torch\.distributed\.run: \["
        r"|^WARNING:__main__:|^(?:W\d{4} .*\] )?\*{10,}$|Setting OMP_NUM_THREADS"
        r"|^={10,}$|^-{10,}$|^\S+ FAILED$|^Failures:$|<NO_OTHER_FAILURES>|^Root Cause \(first|^\[\d+\]:$"
        r"|^ +(?:time|host|rank|exitcode|error_file|traceback) *: "
        r"|^waiting for the rendezvous at |^stopped by signal \d+$"
    ),
    exit_code=r"^ +exitcode *: (-?\d+) \(pid",
    lost_peer=(
        r"Connection (?:closed|reset) by peer|Connection was likely closed|Broken pipe|remote process exited"
        r"|ncclRemoteError|ncclSystemError"
        r"|^DistNetworkError|^Rendezvous\w*Error|^SignalException"
    ),
    killed=_KILLED_FIRST,
)

OUTPUT_PATTERNS = (
    OutputPattern(
        _KILLED_FIRST,
        "one of its processes, rank {rank} (pid {pid}), was killed with SIGKILL",
        KERNEL_LOG_FIX,
        anywhere=True,
    ),
    OutputPattern(
        r"Connection (?:closed|reset) by peer|Connection was likely closed|remote process exited",
        "it lost a peer: another process of the job ended",
        "see why that one ended: its lines in `trainyard logs`",
    ),
    OutputPattern(
        r"NCCL error in.*(?:remote process|network error)|ncclRemoteError|ncclSystemError",
        "NCCL lost a peer: another process of the job ended, or the network between two of them failed",
        "see why another one ended, in `trainyard logs`; if none did, NCCL_DEBUG=INFO in env shows where",
    ),
    OutputPattern(
        r"Signal 9 \(SIGKILL\) received by PID (\d+)|exitcode: -9\).*?\(pid: (\d+)\)",
        "one of its processes, pid {name}, was killed with SIGKILL",
        KERNEL_LOG_FIX,
    ),
    OutputPattern(
        r"Signal \d+ \((SIGSEGV|SIGABRT|SIGBUS|SIGFPE|SIGILL)\) received by PID",
        "one of its processes crashed in native code ({name})",
        NATIVE_CRASH_FIX,
    ),
    OutputPattern(
        r"^ +exitcode *: (\d+) \(pid",
        "one of its processes ended with exit code {name}",
        "mend what its last lines say",
    ),
    OutputPattern(
        r"EtcdConnectionFailed|Could not get the list of servers, maybe"
        r"|etcd.*(?:connection (?:failed|refused)|unreachable|no more machines)",
        "it cannot reach the etcd of its rendezvous",
        "start etcd, and check that the rendezvous endpoint of the spec names it with its port",
    ),
    OutputPattern(
        r"RendezvousTimeout|rendezvous.*timed? ?out",
        "its rendezvous did not fill in time",
        "see that at least the minimum of replicas runs, and that the rendezvous endpoint of the spec answers",
    ),
    OutputPattern(
        r"RendezvousClosed|rendezvous.*closed",
        "its rendezvous is closed, by a job of this name that has ended",
        "use another name, or suspend and resume the job: that opens a new one",
    ),
    OutputPattern(
        r"RendezvousConnectionError|rendezvous.*(?:connection|connect to)",
        "it cannot reach its rendezvous",
        "check that the rendezvous endpoint of the spec names a Service or address that answers",
    ),
)

MODULE_FIXES = {
    "torch": "or `make frameworks` in Trainyard's repository: it installs torch for Debian's /usr/bin/python3"
}


def endpoint_of(job: Json, address: object, field: str) -> Endpoint | None:
    """The address in that field of a job, and the Service of the job's namespace that it may name. None without it."""
    if not isinstance(address, str) or not address.strip():
        return None
    host = address.split("//")[-1].split("/")[0].rpartition(":")[0] or address
    parts = host.split(".")
    if all(part.isdecimal() for part in parts):
        service = host
    else:
        in_namespace = parts[1:2] == [namespace_of(job)] and parts[2:3] in ([], ["svc"])
        service = parts[0] if len(parts) == 1 or in_namespace else ""
    return Endpoint(address, field, service)


def unreachable(job: Job, observed: ObservedReplicas) -> Iterator[Finding]:
    """The Service of the rendezvous address does not exist or has no ready pod."""
    endpoint = observed.endpoint
    if endpoint is None or not endpoint.looked_up:
        return
    where = f"{endpoint.field}: {endpoint.address}"
    if not endpoint.exists:
        summary = f"there is no Service {endpoint.service} in namespace {job.key.namespace}: its replicas cannot meet"
        fix = "make the Service and what runs behind it (for etcd: the README's etcd.yaml), or mend the field"
        yield Finding(BLOCK, summary, where, (), fix)
    elif not endpoint.ready_pods:
        summary = f"no pod behind Service {endpoint.service} is ready: its replicas cannot meet yet"
        yield Finding(WAIT, summary, where, (), f"see why it does not run: kubectl describe service {endpoint.service}")


def with_endpoint(cause: Cause, address: str, field: str) -> Cause:
    """The cause with the endpoint that a launcher could not reach. `address` is "" for a store of the job's own."""
    if not address or "cannot reach" not in cause.explanation:
        return cause
    server = "its server (an etcd with the v2 API, for etcd)"
    fix = f"see that {server} answers at {address}; else mend {field}"
    return Cause(f"the rendezvous at {address} cannot be reached", fix)
