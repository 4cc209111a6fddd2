"""The state of a pod on this node as the lifecycle sees it: values only, no rules.

- `ContainerState` with the table of its transitions, `Run`, `Container`, `Pod`.
- Events, which carry the Unix time in seconds, and the actions that follow from them.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from trainyard.objects.container_restarts import ContainerRestartPolicy, RestartAction
from trainyard.objects.structs import replace

CONFIG_ERROR = "CreateContainerConfigError"  # reason of a container that waits for a ConfigMap, a Secret or a key
DEADLINE_EXCEEDED = "DeadlineExceeded"  # reason of a pod that has reached its activeDeadlineSeconds
DEFAULT_GRACE = 30.0  # seconds; of a pod without terminationGracePeriodSeconds


class ContainerState(StrEnum):
    """The state of one container."""

    WAITING = "waiting"  # not started yet: an init container before it has not ended
    STARTING = "starting"  # the action Start was given: image, files, then the process
    RUNNING = "running"
    PAUSING = "pausing"  # in back-off, will be started again at `next_start`
    ENDED = "ended"
    DROPPED = "dropped"  # will not run (again), the pod is ending


class ProbeKind(StrEnum):
    """The kinds of probes, as the kubelet's events spell them."""

    STARTUP = "Startup"
    LIVENESS = "Liveness"
    READINESS = "Readiness"


class HookKind(StrEnum):
    """The lifecycle hooks, as the kubelet's events spell them."""

    POST_START = "PostStart"
    PRE_STOP = "PreStop"


TRANSITIONS: dict[tuple[ContainerState, str], ContainerState] = {
    (ContainerState.WAITING, "start"): ContainerState.STARTING,
    (ContainerState.WAITING, "drop"): ContainerState.DROPPED,
    (ContainerState.STARTING, "blocked"): ContainerState.STARTING,
    (ContainerState.STARTING, "started"): ContainerState.RUNNING,
    (ContainerState.STARTING, "failed"): ContainerState.ENDED,
    (ContainerState.STARTING, "drop"): ContainerState.DROPPED,
    (ContainerState.RUNNING, "exited"): ContainerState.ENDED,
    (ContainerState.ENDED, "again"): ContainerState.PAUSING,
    (ContainerState.PAUSING, "start"): ContainerState.STARTING,
    (ContainerState.PAUSING, "drop"): ContainerState.DROPPED,
    # RestartAllContainers
    (ContainerState.ENDED, "remove"): ContainerState.WAITING,
    (ContainerState.PAUSING, "remove"): ContainerState.WAITING,
    (ContainerState.DROPPED, "remove"): ContainerState.WAITING,
}
TERMINAL_STATES = frozenset({ContainerState.ENDED, ContainerState.DROPPED})


class Run(msgspec.Struct, frozen=True):
    """One finished run. `started` is 0 when the program never ran."""

    number: int
    code: int
    reason: str
    message: str
    started: float
    finished_at: float
    peak: int = 0  # the largest memory of the run in bytes, 0 if unknown


class Container(msgspec.Struct, frozen=True):
    """The state of one container, as far as the table of transitions needs it."""

    name: str
    init: bool = False
    state: ContainerState = ContainerState.WAITING
    reason: str = ""  # of state.waiting
    message: str = ""
    run: int = 0  # number of the current or last run, from 1
    started: float = 0.0
    last: Run | None = None  # the last finished run
    previous: Run | None = None  # the finished run before that
    failures: int = 0  # ended runs since the last reset: sets the back-off
    next_start: float = 0.0
    restart_policy: ContainerRestartPolicy | None = None  # None: that of the pod
    term_at: float | None = None  # when this run got SIGTERM, or SIGKILL without it
    killed: bool = False  # this run got SIGKILL
    cancelled: bool = False  # the start of this run was cancelled
    removed: bool = False  # RestartAllContainers has removed its last run, and no other one has started
    probes: frozenset[ProbeKind] = frozenset()  # those that its spec has
    awaits_startup: bool = False  # the startup probe of this run has not succeeded yet
    fails_readiness: bool = False  # the readiness probe of this run has not succeeded yet, or fails
    failed_probe: ProbeKind | None = None  # the startup or liveness probe for whose failure this run is ended
    hooks: frozenset[HookKind] = frozenset()  # those that its spec has
    awaits_post_start: bool = False  # the postStart hook of this run has not succeeded: no status shows the run yet
    failed_post_start: bool = False  # this run is ended because its postStart hook has failed
    pre_stop_at: float | None = None  # when the preStop hook of this run was started
    pre_stop_ended: bool = False
    stop_grace: float = 0.0  # seconds until the SIGKILL of a run that is ended for its probe or its postStart hook

    @property
    def is_shown_running(self) -> bool:
        """`state.running` in the status: it runs, and its postStart hook, if it has one, has succeeded."""
        return self.state is ContainerState.RUNNING and not self.awaits_post_start

    @property
    def has_started(self) -> bool:
        """`started` in the status: it is shown as running, and its startup probe, if it has one, has succeeded."""
        return self.is_shown_running and not self.awaits_startup

    @property
    def is_ended_early(self) -> bool:
        """Whether this run is ended, by itself, for a failed probe or hook."""
        return self.failed_probe is not None or self.failed_post_start

    @property
    def hook(self) -> HookKind | None:
        """The hook that is to run now."""
        if self.state is not ContainerState.RUNNING:
            return None
        if self.pre_stop_at is not None:
            return None if self.pre_stop_ended else HookKind.PRE_STOP
        return HookKind.POST_START if self.awaits_post_start and not self.failed_post_start else None

    @property
    def is_ready(self) -> bool:
        """Whether it has started, and its readiness probe, if it has one, succeeds."""
        return self.has_started and not self.fails_readiness

    @property
    def sidecar(self) -> bool:
        """Whether it is a native sidecar."""
        return self.restart_policy is not None and self.restart_policy.sidecar

    @property
    def shown_run(self) -> int:
        """The number of the run that the status describes: the last one, but for one that has not started yet."""
        started = self.is_shown_running or (self.last is not None and self.last.number == self.run)
        return self.run if started else max(0, self.run - 1)

    @property
    def restarts(self) -> int:
        """`restartCount` in the status."""
        return self.shown_run if self.removed else max(0, self.shown_run - 1)

    @property
    def log_run(self) -> int:
        """The number of the run whose log is served: the running one, else the last finished one; 0 for none."""
        return self.run if self.state is ContainerState.RUNNING else self.last.number if self.last else 0


class Pod(msgspec.Struct, frozen=True):
    """`policy` is the restartPolicy. `kill_at` (Unix time) is set once the pod is being stopped, `forced` when without
    a grace period. `failure`: reason and message of a pod that ends as Failed, whatever its exit codes.
    `restarting_all`: from the exit that triggers RestartAllContainers to `remove_at`, when all containers are removed;
    it is set when nothing runs any more. `removed_at`: the last removal."""

    name: str
    uid: str
    policy: str
    containers: tuple[Container, ...]
    grace: float = DEFAULT_GRACE
    started: float = -1.0  # before the first event
    deadline: float | None = None
    deleting: bool = False
    kill_at: float | None = None
    forced: bool = False
    failure: tuple[str, str] | None = None
    restarting_all: bool = False
    remove_at: float | None = None
    removed_at: float | None = None

    @property
    def has_ended(self) -> bool:
        """Whether every container has reached a terminal state: nothing runs and nothing starts any more."""
        return not self.restarting_all and all(container.state in TERMINAL_STATES for container in self.containers)

    @property
    def main_containers(self) -> list[Container]:
        """The containers that are no init containers."""
        return [container for container in self.containers if not container.init]

    @property
    def init_containers(self) -> list[Container]:
        """The init containers, sidecars included."""
        return [container for container in self.containers if container.init]

    def container(self, name: str) -> Container:
        """The container of this name. Raises StopIteration for an unknown name."""
        return next(container for container in self.containers if container.name == name)

    def action(self, container: Container, code: int) -> RestartAction:
        """What follows when the container exits with that code."""
        policy = self.restart_policy(container)
        if container.failed_probe and policy.policy != "Never":
            return "Restart"  # whatever the code and the rules for codes
        return policy.action(code)

    def restart_policy(self, container: Container) -> ContainerRestartPolicy:
        """The restart rules of the container."""
        return container.restart_policy or ContainerRestartPolicy(self.policy, init=container.init)


def transition(container: Container, event: str) -> Container:
    """The container in the state after the event. Raises KeyError for a pair that cannot happen."""
    return replace(container, state=TRANSITIONS[container.state, event])


def with_container(pod: Pod, new: Container) -> Pod:
    """The pod with that container in the place of the one of its name."""
    return replace(
        pod, containers=tuple(new if container.name == new.name else container for container in pod.containers)
    )


# Events; `now` is the Unix time in seconds.


class Tick(msgspec.Struct, frozen=True):
    """Only the time has changed. Also the first event of a pod."""

    now: float


class Blocked(msgspec.Struct, frozen=True):
    """The start of a container waits for something; it is retried."""

    now: float
    container: str
    reason: str
    message: str = ""


class Started(msgspec.Struct, frozen=True):
    """The program of the container runs."""

    now: float
    container: str


class Probed(msgspec.Struct, frozen=True):
    """A probe of that run has reached the threshold of its successes or failures. `grace`: the probe's own
    terminationGracePeriodSeconds, None for that of the pod."""

    now: float
    container: str
    run: int
    kind: ProbeKind
    passed: bool
    grace: float | None = None


class HookEnded(msgspec.Struct, frozen=True):
    """A hook of that run has ended."""

    now: float
    container: str
    run: int
    kind: HookKind
    failed: bool


class Ended(msgspec.Struct, frozen=True):
    """The container exited, or could not be started."""

    now: float
    container: str
    code: int
    reason: str = ""
    message: str = ""
    peak: int = 0  # the largest memory of the run in bytes, 0 if unknown


class Dropped(msgspec.Struct, frozen=True):
    """A start was cancelled by `Cancel`."""

    now: float
    container: str


class Stop(msgspec.Struct, frozen=True):
    """The pod must end within `grace` seconds. `deleting`: its object is deleted after that."""

    now: float
    grace: float
    deleting: bool = True
    failure: tuple[str, str] | None = None


Event = Tick | Blocked | Started | Probed | HookEnded | Ended | Dropped | Stop


# Actions, which the caller performs at once.


class Start(msgspec.Struct, frozen=True):
    """Start this run of the container."""

    container: str
    run: int


class Cancel(msgspec.Struct, frozen=True):
    """Cancel a start in progress."""

    container: str


class Signal(msgspec.Struct, frozen=True):
    """Send SIGTERM to the container, or SIGKILL with `kill`."""

    container: str
    kill: bool


class Wake(msgspec.Struct, frozen=True):
    """Evaluate the pod again at this time (Unix seconds)."""

    at: float


class Over(msgspec.Struct, frozen=True):
    """No container runs or will run: release the pod's resources."""


Action = Start | Cancel | Signal | Wake | Over
