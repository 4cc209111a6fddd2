"""The values that the findings of `trainyard why` consist of. What a kind adds to them is its `Diagnosis` (kind.py).

The rules that hold for every kind are in `views/diagnosis`, which also runs those of the kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

# Levels of a finding, the most important first. `why` returns findings in this order, except that NOTE comes last.
END, BLOCK, WAIT, NOTE, FINE = range(5)


class Finding(msgspec.Struct, frozen=True):
    """One problem or observation: its summary, where it is (object and field), its evidence (lines of text), its fix.

    The fields are those of `trainyard why -o json`, where `summary` is named `what`."""

    level: int
    summary: str = msgspec.field(name="what")
    where: str = ""
    evidence: tuple[str, ...] = ()
    fix: str = ""


class Cause(NamedTuple):
    """The cause of a problem (`explanation`) and its fix. Either is "" when it is unknown."""

    explanation: str = ""
    fix: str = ""


class OutputPattern(msgspec.Struct, frozen=True):
    """What a line of a program's output tells. `pattern`: a regular expression that is searched for in any case, and
    compiled at its first use. `{name}` in `explanation` and `fix` stands for its first group that matched, and in
    `explanation` the name of a group for that group. `anywhere`: lines with which a launcher explains its own end, so
    that neither their place nor the exit code matters: mpirun ends with the code of the process that it lost. The
    pattern is searched for in each two lines together, too, because mpirun wraps its messages; with `\\n` in all lines.
    Without `before_exceptions` an uncaught exception is the cause, if there is one: the launcher prints that line after
    it, too."""

    pattern: str
    explanation: str
    fix: str | Callable[[str, ContainerContext], str]  # or a function of that group and the container
    anywhere: bool = False
    before_exceptions: bool = True


class LauncherOutput(msgspec.Struct, frozen=True):
    """How the output of a launcher, such as torchrun, is told from that of the processes that it starts. All fields are
    regular expressions.

    files: source files that only the launcher's own tracebacks have. lines: further lines of the launcher. exit_code:
    its line with the exit code of a process, the first group. lost_peer: exceptions (`KIND: MESSAGE`) of a process or
    launcher whose peers ended first, so that the cause is theirs. killed: lines about the process that ended first,
    of SIGKILL."""

    files: str
    lines: str
    exit_code: str
    lost_peer: str
    killed: str = ""
    aborted: str = ""


class SessionLog(msgspec.Struct, frozen=True):
    """How the log of a worker shows whether the launcher has opened a session in it. ready: a regular expression of the
    line of a server that waits for sessions and logs them. opened: of a session. unused: the words for a log without
    one."""

    ready: str
    opened: str
    unused: str
    fix: str


class MissingModules(msgspec.Struct, frozen=True):
    """Where this machine has Python modules that a program did not find, as far as it was looked up."""

    packages: Mapping[str, str] = {}
    interpreters: Mapping[str, str] = {}


class ContainerContext(msgspec.Struct, frozen=True):
    """What is known about a terminated container beside its output."""

    on_process_node: bool = False  # it ran as processes on a Trainyard node, not in a container with an image
    interpreter: str = ""  # path of the interpreter that `python` was in the container; "" when unknown
    image: str = ""
    memory_limit: str = ""  # its resources.limits.memory
    mount_paths: tuple[str, ...] = ()  # of its volumeMounts
    # (port that its output or spec names, program or pod that listens on it)
    port_holders: tuple[tuple[int, str], ...] = ()
    output_patterns: tuple[OutputPattern, ...] = ()  # those of the kind
    launcher: LauncherOutput | None = None  # that of the kind
    job_ended: bool = False  # nothing of the job is started again
    modules: MissingModules = MissingModules()
    module_fixes: Mapping[str, str] = {}
    stop: Cause = Cause()  # why the kubelet stopped it, as far as the pod's status or an event tells it


class Endpoint(msgspec.Struct, frozen=True):
    """An address that the replicas need, and the Service that it names. `looked_up` False: the lookup was not possible
    or not necessary."""

    address: str
    field: str  # where the job has it: spec.rdzvEndpoint
    service: str = ""  # name of the Service, or its cluster IP; "" for a host outside of the job's namespace
    looked_up: bool = False
    exists: bool = False
    ready_pods: int = 0  # number of ready pods behind it


class ObservedReplicas(msgspec.Struct, frozen=True):
    """What the rules of a kind know beside the job: the state of each replica that has a pod, as `describe` shows it,
    and the kind's endpoint."""

    states: tuple[str, ...]
    endpoint: Endpoint | None
