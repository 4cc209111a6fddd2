"""The lifecycle of a pod: a transition table for the state of one container, and the rules for the whole pod.

Rules for this file:
- Pure: `step(pod, event) -> (pod, actions)`. Events carry the time; the caller performs the actions and feeds their
  results as new events; `Wake` requests a `Tick` at that time.
- A pair that is missing in TRANSITIONS cannot happen: the KeyError names the bug.

Rules of the kubelet that stand beside the table:
- Init containers run in their order, each after the success of the one before. After all of them, all other containers
  are started together. When an init container fails and is not restarted, the containers that wait are dropped.
- restartPolicy Never restarts no container, OnFailure those that have failed, Always all. An init container that has
  succeeded is never restarted. A container that cannot be started has failed.
- The first restart is immediate, the next ones are 10 s, 20 s ... 5 min after the end of the run. A run of ten minutes
  resets the back-off.
- The first `Stop` sends SIGTERM to the running containers and cancels the starts in progress; with a grace period of 0
  no SIGTERM is sent. A later `Stop` can only shorten the grace period. The object is deleted after the pod's end when
  one of them has `deleting`, and the first `failure` remains.
- While the pod is being stopped, no container is started or restarted: those that wait or are in back-off are dropped.
  At the end of the grace period the running containers are killed with SIGKILL, once. A container whose start could no
  longer be cancelled gets SIGTERM, or SIGKILL after the grace period, as soon as it runs.
- activeDeadlineSeconds counts from the first event of the pod. At the deadline a pod that is not being stopped is
  stopped with its own grace period and ends as Failed with the reason DeadlineExceeded.
- A pod is over when each of its containers has ended for good or was dropped: then `Over` is returned, once. Until then
  each step returns `Wake` for the next time at which something is due: a start after back-off, the end of the grace
  period, the deadline.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from trainyard.objects import exponential_delay
from trainyard.objects.structs import replace

INITIAL_BACK_OFF, MAX_BACK_OFF = 10.0, 300.0
BACK_OFF_RESET = 600.0  # seconds; a run this long resets the back-off
DEFAULT_GRACE = 30.0  # seconds; of a pod without terminationGracePeriodSeconds


class ContainerState(StrEnum):
    """The state of one container."""

    WAITING = "waiting"  # not started yet: an init container before it has not ended
    STARTING = "starting"  # the action Start was given: image, files, then the process
    RUNNING = "running"
    PAUSING = "pausing"  # in back-off, will be started again at `next_start`
    ENDED = "ended"
    DROPPED = "dropped"  # will not run (again), the pod is ending


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

    @property
    def restarts(self) -> int:
        """`restartCount` in the status."""
        return max(0, self.run - 1)

    @property
    def log_run(self) -> int:
        """The number of the run whose log is served: the running one, else the last finished one; 0 for none."""
        return self.run if self.state is ContainerState.RUNNING else self.last.number if self.last else 0


class Pod(msgspec.Struct, frozen=True):
    """`policy` is the restartPolicy. `kill_at` (Unix time) is set once the pod is being stopped. `failure`: reason and
    message of a pod that ends as Failed, whatever its exit codes."""

    name: str
    uid: str
    policy: str
    containers: tuple[Container, ...]
    grace: float = DEFAULT_GRACE
    started: float = -1.0  # before the first event
    deadline: float | None = None
    deleting: bool = False
    kill_at: float | None = None
    killed: bool = False
    failure: tuple[str, str] | None = None

    @property
    def has_ended(self) -> bool:
        """Whether every container has reached a terminal state: nothing runs and nothing starts any more."""
        return all(container.state in TERMINAL_STATES for container in self.containers)

    def container(self, name: str) -> Container:
        """The container of this name. Raises StopIteration for an unknown name."""
        return next(container for container in self.containers if container.name == name)


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


Event = Tick | Blocked | Started | Ended | Dropped | Stop


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


def back_off(failures: int) -> float:
    """The back-off in seconds before the next start, after so many ended runs in a row."""
    return 0.0 if failures <= 1 else exponential_delay(failures - 1, INITIAL_BACK_OFF, MAX_BACK_OFF)


def step(pod: Pod, event: Event) -> tuple[Pod, list[Action]]:
    """Apply one event: returns the new state of the pod and the actions to perform."""
    had_ended = pod.has_ended
    actions: list[Action] = []
    match event:
        case Blocked(_, name, reason, message):
            container = pod.container(name)
            pod = _with_container(pod, replace(_transition(container, "blocked"), reason=reason, message=message))
        case Started(now, name):
            container = _transition(pod.container(name), "started")
            pod = _with_container(pod, replace(container, started=now, reason="", message=""))
            if pod.kill_at is not None:
                actions.append(Signal(name, pod.killed))
        case Ended():
            pod = _with_container(pod, _with_run_ended(pod.container(event.container), event))
        case Dropped(_, name):
            pod = _with_container(pod, _transition(pod.container(name), "drop"))
        case Stop():
            pod = _begin_stop(pod, event, actions)
        case Tick():
            pass
    if pod.started < 0:
        pod = replace(pod, started=event.now)
    if pod.kill_at is None and pod.deadline is not None and event.now >= pod.started + pod.deadline:
        text = "Pod was active on the node longer than the specified deadline"
        pod = _begin_stop(pod, Stop(event.now, pod.grace, False, ("DeadlineExceeded", text)), actions)
    pod = _step_stopping(pod, event.now, actions) if pod.kill_at is not None else _step_running(pod, event.now, actions)
    if pod.has_ended and not had_ended:
        actions.append(Over())
    elif not pod.has_ended and (wake_at := _next_wake(pod)) is not None:
        actions.append(Wake(wake_at))
    return pod, actions


def _transition(container: Container, event: str) -> Container:
    return replace(container, state=TRANSITIONS[container.state, event])


def _with_container(pod: Pod, new: Container) -> Pod:
    return replace(
        pod, containers=tuple(new if container.name == new.name else container for container in pod.containers)
    )


def _with_run_ended(container: Container, event: Ended) -> Container:
    started = container.started if container.state is ContainerState.RUNNING else 0.0
    reason = event.reason or ("Completed" if event.code == 0 else "Error")
    last = Run(container.run, event.code, reason, event.message, started, event.now, event.peak)
    forgiven = started and event.now - started >= BACK_OFF_RESET
    container = _transition(container, "exited" if container.state is ContainerState.RUNNING else "failed")
    return replace(container, last=last, previous=container.last, failures=1 if forgiven else container.failures + 1)


def _begin_stop(pod: Pod, event: Stop, actions: list[Action]) -> Pod:
    """The first Stop sends SIGTERM; a later one can only shorten the grace period."""
    kill_at = event.now + max(0.0, event.grace)
    if pod.kill_at is None:
        for container in pod.containers:
            if container.state is ContainerState.RUNNING and event.grace > 0:
                actions.append(Signal(container.name, False))
            elif container.state is ContainerState.STARTING:
                actions.append(Cancel(container.name))
    else:
        kill_at = min(kill_at, pod.kill_at)
    return replace(pod, kill_at=kill_at, deleting=pod.deleting or event.deleting, failure=pod.failure or event.failure)


def _step_stopping(pod: Pod, now: float, actions: list[Action]) -> Pod:
    for container in pod.containers:
        if container.state in (ContainerState.WAITING, ContainerState.PAUSING):
            pod = _with_container(pod, _transition(container, "drop"))
    if pod.kill_at is not None and now >= pod.kill_at and not pod.killed:
        actions += [
            Signal(container.name, True) for container in pod.containers if container.state is ContainerState.RUNNING
        ]
        pod = replace(pod, killed=True)
    return pod


def _step_running(pod: Pod, now: float, actions: list[Action]) -> Pod:
    """Start the containers that are due: the first init container without success, or, after all of them, the
    others."""
    inits = [container for container in pod.containers if container.init]
    unfinished = next((container for container in inits if not _succeeded(container)), None)
    if unfinished is not None:
        pod = _start_if_due(pod, unfinished, now, actions)
        if pod.container(unfinished.name).state is ContainerState.ENDED:  # it failed and is not restarted
            for container in pod.containers:
                if container.state is ContainerState.WAITING:
                    pod = _with_container(pod, _transition(container, "drop"))
        return pod
    for container in pod.containers:
        if not container.init:
            pod = _start_if_due(pod, container, now, actions)
    return pod


def _start_if_due(pod: Pod, container: Container, now: float, actions: list[Action]) -> Pod:
    if container.state is ContainerState.ENDED and container.last is not None and _restarts(pod.policy, container):
        delay = back_off(container.failures)
        message = (
            f"back-off {_go_duration(delay)} restarting failed container={container.name} pod={pod.name}({pod.uid})"
        )
        container = replace(
            _transition(container, "again"),
            next_start=container.last.finished_at + delay,
            reason="CrashLoopBackOff",
            message=message,
        )
    if container.state is ContainerState.WAITING or (
        container.state is ContainerState.PAUSING and now >= container.next_start
    ):
        container = replace(
            _transition(container, "start"), run=container.run + 1, reason="ContainerCreating", message=""
        )
        actions.append(Start(container.name, container.run))
    return _with_container(pod, container)


def _succeeded(container: Container) -> bool:
    return container.state is ContainerState.ENDED and container.last is not None and container.last.code == 0


def _restarts(policy: str, container: Container) -> bool:
    """Whether the restartPolicy restarts the ended container. A successful init container is never restarted."""
    failed = container.last is not None and container.last.code != 0
    return policy != "Never" and (failed or (policy == "Always" and not container.init))


def _next_wake(pod: Pod) -> float | None:
    times = [container.next_start for container in pod.containers if container.state is ContainerState.PAUSING]
    if pod.kill_at is not None:
        times = [] if pod.killed else [pod.kill_at]
    elif pod.deadline is not None:
        times.append(pod.started + pod.deadline)
    return min(times, default=None)


def _go_duration(seconds: float) -> str:
    """The duration as Go prints it: 10s, 1m20s, 5m0s."""
    total = int(seconds)
    return f"{total // 60}m{total % 60}s" if total >= 60 else f"{total}s"
