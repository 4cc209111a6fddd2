"""What a pod and its containers go through: a table of the moves of one container, and the rules of the whole pod.

Rules:
- Pure: `step(pod, event) -> (pod, actions)`. The clock is in the events; whoever carries out the actions tells what
  came of them by new events, and `Wake` asks for a `Tick` at a time.
- A pair that is missing in NEXT cannot happen: the KeyError names the bug.
- The rules are the kubelet's: init containers one after the other, then all others together; the first restart at
  once, then after 10 s, 20 s ... 5 min, counted from the end, forgotten after ten minutes of running.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from trainyard.objects.values import replace

FIRST_PAUSE, LONGEST_PAUSE = 10.0, 300.0
FORGIVEN_AFTER = 600.0  # a run this long starts the count anew


class At(StrEnum):
    """Where one container is."""

    WAITING = "waiting"  # its turn has not come
    STARTING = "starting"  # Start was asked for: image, files, then the process
    RUNNING = "running"
    PAUSING = "pausing"  # it will be started again at `due`
    ENDED = "ended"
    DROPPED = "dropped"  # it will never run, the pod is over


NEXT: dict[tuple[At, str], At] = {
    (At.WAITING, "start"): At.STARTING,
    (At.WAITING, "drop"): At.DROPPED,
    (At.STARTING, "blocked"): At.STARTING,
    (At.STARTING, "started"): At.RUNNING,
    (At.STARTING, "failed"): At.ENDED,
    (At.STARTING, "drop"): At.DROPPED,
    (At.RUNNING, "exited"): At.ENDED,
    (At.ENDED, "again"): At.PAUSING,
    (At.PAUSING, "start"): At.STARTING,
    (At.PAUSING, "drop"): At.DROPPED,
}
OVER = frozenset({At.ENDED, At.DROPPED})


class Run(msgspec.Struct, frozen=True):
    """One finished run. `started` is 0 when the program never ran."""

    number: int
    code: int
    reason: str
    message: str
    started: float
    finished: float


class Container(msgspec.Struct, frozen=True):
    name: str
    init: bool = False
    at: At = At.WAITING
    reason: str = ""  # of waiting
    message: str = ""
    run: int = 0  # the number of the run under way, or of the last one
    started: float = 0.0
    last: Run | None = None  # the last finished run
    before: Run | None = None  # the finished run before that
    failures: int = 0  # ends since it was last forgiven: sets the pause
    due: float = 0.0

    @property
    def restarts(self) -> int:
        return max(0, self.run - 1)

    @property
    def current(self) -> int:
        """The run whose output there is: the one that runs, else the last one that ended; 0 for none."""
        return self.run if self.at is At.RUNNING else self.last.number if self.last else 0


class Pod(msgspec.Struct, frozen=True):
    """`policy` is the restartPolicy. `kill_at` is set once the pod is being stopped; `failure` overrides its phase."""

    name: str
    uid: str
    policy: str
    containers: tuple[Container, ...]
    grace: float = 30.0
    began: float = -1.0  # before the first event
    deadline: float | None = None
    deleting: bool = False
    kill_at: float | None = None
    killed: bool = False
    failure: tuple[str, str] | None = None

    @property
    def over(self) -> bool:
        return all(one.at in OVER for one in self.containers)

    def named(self, name: str) -> Container:
        return next(one for one in self.containers if one.name == name)


# Events: what happened, and when.


class Tick(msgspec.Struct, frozen=True):
    """Time has passed. Also the first event of a pod."""

    now: float


class Blocked(msgspec.Struct, frozen=True):
    """A container that should start has to wait; it is still being tried."""

    now: float
    container: str
    reason: str
    message: str = ""


class Started(msgspec.Struct, frozen=True):
    now: float
    container: str


class Ended(msgspec.Struct, frozen=True):
    """It exited, or could not be started at all."""

    now: float
    container: str
    code: int
    reason: str = ""
    message: str = ""


class Dropped(msgspec.Struct, frozen=True):
    """A start was given up, because of a `Cancel`."""

    now: float
    container: str


class Stop(msgspec.Struct, frozen=True):
    """The pod must end within `grace` seconds. `deleting`: and its object must go then."""

    now: float
    grace: float
    deleting: bool = True
    failure: tuple[str, str] | None = None


Event = Tick | Blocked | Started | Ended | Dropped | Stop


# Actions: what must be done now.


class Start(msgspec.Struct, frozen=True):
    container: str
    run: int


class Cancel(msgspec.Struct, frozen=True):
    """Give up a start that is under way."""

    container: str


class Signal(msgspec.Struct, frozen=True):
    container: str
    kill: bool


class Wake(msgspec.Struct, frozen=True):
    at: float


class Over(msgspec.Struct, frozen=True):
    """Nothing of the pod runs and nothing will: free what it holds."""


Action = Start | Cancel | Signal | Wake | Over


def pause(failures: int) -> float:
    """How long to wait before the next start, after so many ends in a row."""
    return 0.0 if failures <= 1 else float(min(FIRST_PAUSE * 2 ** (failures - 2), LONGEST_PAUSE))


def step(pod: Pod, event: Event) -> tuple[Pod, list[Action]]:
    """Take one event in; the new pod, and what must be done about it."""
    was_over = pod.over
    actions: list[Action] = []
    match event:
        case Blocked(_, name, reason, message):
            one = pod.named(name)
            pod = _put(pod, replace(_move(one, "blocked"), reason=reason, message=message))
        case Started(now, name):
            one = _move(pod.named(name), "started")
            pod = _put(pod, replace(one, started=now, reason="", message=""))
            if pod.kill_at is not None:
                actions.append(Signal(name, pod.killed))
        case Ended():
            pod = _put(pod, _ended(pod.named(event.container), event))
        case Dropped(_, name):
            pod = _put(pod, _move(pod.named(name), "drop"))
        case Stop():
            pod = _stop(pod, event, actions)
        case Tick():
            pass
    if pod.began < 0:
        pod = replace(pod, began=event.now)
    if pod.kill_at is None and pod.deadline is not None and event.now >= pod.began + pod.deadline:
        text = "Pod was active on the node longer than the specified deadline"
        pod = _stop(pod, Stop(event.now, pod.grace, False, ("DeadlineExceeded", text)), actions)
    pod = _stopping(pod, event.now, actions) if pod.kill_at is not None else _going(pod, event.now, actions)
    if pod.over and not was_over:
        actions.append(Over())
    elif not pod.over and (at := _next_time(pod)) is not None:
        actions.append(Wake(at))
    return pod, actions


def _move(one: Container, happened: str) -> Container:
    return replace(one, at=NEXT[one.at, happened])


def _put(pod: Pod, new: Container) -> Pod:
    return replace(pod, containers=tuple(new if one.name == new.name else one for one in pod.containers))


def _ended(one: Container, event: Ended) -> Container:
    started = one.started if one.at is At.RUNNING else 0.0
    reason = event.reason or ("Completed" if event.code == 0 else "Error")
    last = Run(one.run, event.code, reason, event.message, started, event.now)
    forgiven = started and event.now - started >= FORGIVEN_AFTER
    one = _move(one, "exited" if one.at is At.RUNNING else "failed")
    return replace(one, last=last, before=one.last, failures=1 if forgiven else one.failures + 1)


def _stop(pod: Pod, event: Stop, actions: list[Action]) -> Pod:
    """The first Stop sends TERM; a later one can only bring the end nearer."""
    kill_at = event.now + max(0.0, event.grace)
    if pod.kill_at is None:
        for one in pod.containers:
            if one.at is At.RUNNING and event.grace > 0:
                actions.append(Signal(one.name, False))
            elif one.at is At.STARTING:
                actions.append(Cancel(one.name))
    else:
        kill_at = min(kill_at, pod.kill_at)
    return replace(pod, kill_at=kill_at, deleting=pod.deleting or event.deleting, failure=pod.failure or event.failure)


def _stopping(pod: Pod, now: float, actions: list[Action]) -> Pod:
    for one in pod.containers:
        if one.at in (At.WAITING, At.PAUSING):
            pod = _put(pod, _move(one, "drop"))
    if pod.kill_at is not None and now >= pod.kill_at and not pod.killed:
        actions += [Signal(one.name, True) for one in pod.containers if one.at is At.RUNNING]
        pod = replace(pod, killed=True)
    return pod


def _going(pod: Pod, now: float, actions: list[Action]) -> Pod:
    """Start what is due: the first init container that has not ended well, or else everything else."""
    inits = [one for one in pod.containers if one.init]
    unfinished = next((one for one in inits if not _succeeded(one)), None)
    if unfinished is not None:
        pod = _attend(pod, unfinished, now, actions)
        if pod.named(unfinished.name).at is At.ENDED:  # it failed, and is not tried again
            for one in pod.containers:
                if one.at is At.WAITING:
                    pod = _put(pod, _move(one, "drop"))
        return pod
    for one in pod.containers:
        if not one.init:
            pod = _attend(pod, one, now, actions)
    return pod


def _attend(pod: Pod, one: Container, now: float, actions: list[Action]) -> Pod:
    if one.at is At.ENDED and one.last is not None and _again(pod.policy, one):
        wait = pause(one.failures)
        text = f"back-off {_words(wait)} restarting failed container={one.name} pod={pod.name}({pod.uid})"
        one = replace(_move(one, "again"), due=one.last.finished + wait, reason="CrashLoopBackOff", message=text)
    if one.at is At.WAITING or (one.at is At.PAUSING and now >= one.due):
        one = replace(_move(one, "start"), run=one.run + 1, reason="ContainerCreating", message="")
        actions.append(Start(one.name, one.run))
    return _put(pod, one)


def _succeeded(one: Container) -> bool:
    return one.at is At.ENDED and one.last is not None and one.last.code == 0


def _again(policy: str, one: Container) -> bool:
    """Init containers are repeated only when they fail, whatever the policy says of success."""
    failed = one.last is not None and one.last.code != 0
    return policy != "Never" and (failed or (policy == "Always" and not one.init))


def _next_time(pod: Pod) -> float | None:
    times = [one.due for one in pod.containers if one.at is At.PAUSING]
    if pod.kill_at is not None:
        times = [] if pod.killed else [pod.kill_at]
    elif pod.deadline is not None:
        times.append(pod.began + pod.deadline)
    return min(times, default=None)


def _words(seconds: float) -> str:
    """As Go prints a duration: 10s, 1m20s, 5m0s."""
    whole = int(seconds)
    return f"{whole // 60}m{whole % 60}s" if whole >= 60 else f"{whole}s"
