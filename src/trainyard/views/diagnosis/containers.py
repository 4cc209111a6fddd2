"""The containers of a pod, and how they terminated: the cause, the last lines of the output, and the fix."""

from __future__ import annotations

import re
import signal

from trainyard.core.diagnosis import Cause
from trainyard.objects import Json, uid_of
from trainyard.objects.container_statuses import ContainerStatus
from trainyard.objects.patterns import lazy_pattern
from trainyard.objects.usage import XID_ERROR
from trainyard.views.diagnosis.accelerators import is_device_out_of_memory, with_lagging_ranks, with_xids
from trainyard.views.diagnosis.inputs import Facts, container_context, container_field, container_spec, log_key
from trainyard.views.diagnosis.kubelet_stops import is_about_pod, is_in_run
from trainyard.views.diagnosis.launchers import process_lines
from trainyard.views.diagnosis.output import CAUSE_LINES, OUT_OF_MEMORY, cause_of, port_in_use, ports_in
from trainyard.views.diagnosis.tracebacks import tracebacks
from trainyard.views.diagnosis.waiting_reasons import volume_cause
from trainyard.views.memory import device_peak, format_bytes, memory_peak
from trainyard.views.replica_view import replica_view

KILLED = 128 + signal.SIGKILL
NO_OUTPUT = "it printed nothing"
SHOWN_LINES = 40  # last lines of a finding


def termination(
    facts: Facts, pod: Json, container: ContainerStatus, terminated: Json
) -> tuple[str, str, tuple[str, ...], str]:
    """How a container terminated: (text, place, last lines, fix), the fields of a `Finding` after its level."""
    code, reason = int(terminated["exitCode"]), str(terminated.get("reason") or "Error")
    lines = last_lines(facts, pod, container.name, terminated)
    xids = xid_messages(facts, pod, container)
    cause = termination_cause(facts, pod, container, code, reason, lines)
    cause = with_xids(cause, xids) if code else cause
    memory = memory_lines(pod, container, code, lines)
    lines = shown_lines(facts, lines)
    summary = f"ended with exit code {code} ({reason})" + (
        f" in init container {container.name}" if container.init else ""
    )
    summary += f": {cause.explanation}" if cause.explanation else ""
    where = container_field(pod, container.name, f"state.terminated.exitCode={code}")
    return (
        summary,
        where,
        (*(lines or (NO_OUTPUT,)), *memory, *(f"kernel log: {text}" for text in xids)),
        cause.fix or default_fix(lines, container),
    )


def termination_cause(
    facts: Facts, pod: Json, container: ContainerStatus, code: int, reason: str, lines: tuple[str, ...]
) -> Cause:
    """Why a container terminated: from its exit code, its last lines, its spec and the ports in use on the machine."""
    if cause := next((volume for line in lines[-2:] if (volume := volume_cause(line))), None):
        return cause
    ports = [*ports_in(lines), *declared_ports(pod, container.name)] if port_in_use(lines) else []
    holders = tuple((port, facts.listeners[port]) for port in dict.fromkeys(ports) if port in facts.listeners)
    cause = cause_of(lines, code, reason, container_context(facts, pod, container.name, container.status, holders))
    cause = with_lagging_ranks(facts.kind.diagnosis.refine(facts.parsed_job, cause), facts.logs.values())
    return _with_peer(facts, pod, lines, cause)


_PEER = lazy_pattern(r"(?:peer|remote)\b[^\d\n]{0,24}?\[?(\d{1,3}(?:\.\d{1,3}){3})\]?:\d+", re.IGNORECASE)
_ANOTHER = ": another process of the job ended"


def _with_peer(facts: Facts, pod: Json, lines: tuple[str, ...], cause: Cause) -> Cause:
    """The cause, with the replica whose address the output has where it tells that a peer was lost."""
    if _ANOTHER not in cause.explanation:
        return cause
    addresses = {match[1] for line in lines for match in _PEER.finditer(line)}
    peers = [
        (replica, peer)
        for replica, peer in ((replica_view(peer), peer) for peer in (*facts.pods, *facts.deleted_pods))
        if (peer.get("status") or {}).get("podIP") in addresses and uid_of(peer) != uid_of(pod)
    ]
    if len({replica.name for replica, _ in peers}) != 1:
        return cause
    replica, _ = peers[-1]
    end = f"ended with exit code {replica.exit_code}" if replica.exit_code is not None else "has ended, or hangs"
    explanation = cause.explanation.replace(_ANOTHER, f", {replica.name}, which {end}")
    index = replica.name.rpartition("-")[2]
    return Cause(explanation, f"see why: `{facts.command('logs')} --role {replica.role} --index {index}`")


def memory_lines(pod: Json, container: ContainerStatus, code: int, lines: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The peak and the limit of the memory of a run that SIGKILL ended, or whose last lines say that memory was short,
    as a line of evidence; () otherwise, and when the peak is unknown. `code`: its exit code."""
    device_lines: tuple[str, ...] = ()
    if is_device_out_of_memory(lines) and (peak := device_peak(pod, container)):
        device_lines = (f"memory on GPUs: peak {format_bytes(peak)}",)
    if code != KILLED and not any(OUT_OF_MEMORY.search(line) for line in lines[-CAUSE_LINES:]):
        return device_lines
    text = memory_peak(pod, container).text
    return (*((f"memory: {text}",) if text else ()), *device_lines)


def xid_messages(facts: Facts, pod: Json, container: ContainerStatus) -> tuple[str, ...]:
    """What the driver has written to the kernel log about the devices of the pod during the last run of a container."""
    return tuple(
        str(event.get("message") or "")
        for event in facts.events
        if event.get("reason") == XID_ERROR and is_about_pod(event, pod) and is_in_run(event, container)
    )


def declared_ports(pod: Json, container: str) -> list[int]:
    """The containerPorts of a container."""
    port_specs = container_spec(pod, container).get("ports")
    ports = (
        [port.get("containerPort") for port in port_specs if isinstance(port, dict)]
        if isinstance(port_specs, list)
        else []
    )
    return [number for number in ports if isinstance(number, int)]


def shown_lines(facts: Facts, lines: tuple[str, ...]) -> tuple[str, ...]:
    """The last lines of the program itself, not those of its launcher."""
    return process_lines(lines, facts.kind.diagnosis.launcher)[-SHOWN_LINES:]


def default_fix(lines: tuple[str, ...], container: ContainerStatus) -> str:
    """The fix when the cause is unknown."""
    if lines:
        return "mend what its last lines say"
    if container.init:
        return f"let init container {container.name} print what it does (`set -x` in a shell), and make the job again"
    return "let the program print what it does (`set -x` in a shell), and make the job again"


def last_lines(facts: Facts, pod: Json, container_name: str, terminated: Json) -> tuple[str, ...]:
    """The last lines of the output; without output, the termination message of the container.

    More than SHOWN_LINES where a launcher may have printed the last ones."""
    message = str(terminated.get("message") or "")
    lines = facts.logs.get(log_key(pod, container_name)) or tuple(message.splitlines())
    return lines if facts.kind.diagnosis.launcher else lines[_shown_from(lines) :]


def _shown_from(lines: tuple[str, ...]) -> int:
    """Where the last SHOWN_LINES lines begin, or the traceback that ends in them: the message of an exception may be a
    whole batch, and a framework has many frames. A message goes on as long as its brackets are open."""
    begin = max(0, len(lines) - SHOWN_LINES)
    in_order = tracebacks(lines)
    if not in_order:
        return begin
    last = in_order[-1]
    message = "\n".join(lines[last.end : begin])
    is_open = any(message.count(left) > message.count(right) for left, right in ("()", "[]", "{}"))
    return min(begin, last.start) if last.end >= begin or is_open else begin
