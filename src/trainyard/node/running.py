"""One pod on this node: carries out what the lifecycle decides, and tells it what came of it.

Rules:
- Only `feed` changes the lifecycle, and it never waits: what takes time is a task that feeds an event at its end.
- An exception in what is done for this pod is the end of this pod (`fail`): no watch, timer or other pod sees it.
- Statuses are written one at a time and only when they differ from the last; what happens meanwhile is in the next.
- A pod that is over frees its network and processes at once; its logs stay until its object is gone."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

from trainyard.client import ApiError, Conflict
from trainyard.controller_runtime import Backoff
from trainyard.node import events, lifecycle, messages, status
from trainyard.node.kubelet import Log, Refused
from trainyard.node.lifecycle import Blocked, Cancel, Dropped, Ended, Over, Signal, Start, Started, Stop, Tick, Wake
from trainyard.node.names import peer_of
from trainyard.node.pod_logs import PodLogs
from trainyard.node.pods import containers
from trainyard.node.removing import remove
from trainyard.node.returning import LOST, ended, returned
from trainyard.node.sandbox import Failed, SandboxError
from trainyard.node.starting import House, Starter
from trainyard.node.unsaved_files import FILES_LOST, replica_name
from trainyard.node.volumes import Hopeless
from trainyard.node.words import TooLong
from trainyard.objects import Json, labels_of, name_of, namespace_of, revision_of, uid_of, with_condition
from trainyard.objects.labels import OWNER
from trainyard.objects.values import replace

if TYPE_CHECKING:
    from trainyard.node import exec

log = logging.getLogger(__name__)

_GRACE = 30.0
_EVENT_SECONDS = 2.0
_REFUSED = 0.5, 8.0  # seconds until a status that was refused is written again
GOING = ("Terminated", "Pod was terminated in response to imminent node shutdown.")
DISRUPTED = "DisruptionTarget"
_OURS = frozenset({"Initialized", "Ready", "ContainersReady", "PodScheduled"})  # conditions that a node writes


UNEXPECTED = "UnexpectedAdmissionError"  # the kubelet's reason for a pod that ends by an error of the node itself
_LONGEST_NAME = 255  # bytes of a file's name
P = ParamSpec("P")


def _ends_only_this_pod(handle: Callable[Concatenate[Running, P], None]) -> Callable[Concatenate[Running, P], None]:
    """An exception of `handle` becomes the end of its pod."""

    def contained(running: Running, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            handle(running, *args, **kwargs)
        except Exception as error:
            running.fail(error)

    return contained


class Running:
    def __init__(self, house: House, pod: Json, gone: Callable[[Running], None]) -> None:
        self.house, self.pod, self._gone = house, pod, gone
        self.uid = uid_of(pod)
        self.folder = house.state / "pods" / folder_name(namespace_of(pod), name_of(pod), self.uid)
        own = self.folder / "logs"
        self.logs = PodLogs(own, None if own.is_dir() else house.log_folder(pod))
        self.life, self._lost = returned(_life(pod), pod.get("status") or {}, self.logs.newest_runs())
        self.over = asyncio.Event()
        self.told = asyncio.Event()  # the API server knows how it ended, or need not
        self.address = ""
        self._starter = Starter(house, pod, self.folder, "", self._warn)
        self._starts: dict[str, asyncio.Task[None]] = {}
        self._spawning: set[str] = set()
        self._early: dict[str, tuple[int, str]] = {}  # exit codes and reasons of runs whose start has not been told yet
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._written: Json = {}
        self._writing: asyncio.Task[None] | None = None
        self._report: asyncio.Task[None] | None = None  # says which files go with the pod, and its event
        self._event: asyncio.Task[None] | None = None
        self._vanished = False
        self._disrupted = False
        self.quiet = False  # nothing more is told of it: it is to go on as if it still ran
        self._leaving = False
        self._failures = 0  # exceptions in what was done for this pod
        self._events = events.EventWriter(lambda one: house.cluster.write_event(self.pod, one, house.now()), house.now)

    # What the node tells.

    def remember(self) -> bool:
        """Instead of `begin`, for a pod that ended in a former life: it is known for its logs. Are there any?"""
        self.life = ended(_life(self.pod), self.pod.get("status") or {})
        self.over.set()
        self.told.set()
        return self.logs.exist

    @property
    def writing(self) -> asyncio.Task[None] | None:
        """The write of a status that is under way."""
        return self._writing if self._writing and not self._writing.done() else None

    @_ends_only_this_pod
    def begin(self) -> None:
        self.address = self.house.network.allot(self.pod)
        self._starter = Starter(self.house, self.pod, self.folder, self.address, self._warn)
        self._announce()
        deleting = bool(self.pod["metadata"].get("deletionTimestamp"))
        if deleting:
            self.seen(self.pod)  # before anything is started
        for name in self._lost:
            self.feed(Ended(self.house.now(), name, 137, *LOST))
        if not self._lost and not deleting:
            self.feed(Tick(self.house.now()))
            if self.life.over:  # in a former life, which was killed before it could say so
                self._finish(deleting=False)

    @_ends_only_this_pod
    def seen(self, pod: Json) -> None:
        """The object has changed. What concerns a pod that is placed is its labels and its deletion."""
        self._take(pod)
        self._announce()
        meta = pod["metadata"]
        if meta.get("deletionTimestamp"):
            grace = meta.get("deletionGracePeriodSeconds")
            self._stop(float(grace) if grace is not None else _GRACE)

    @_ends_only_this_pod
    def vanished(self) -> None:
        """The object is gone, so the pod must go: at once."""
        self._vanished = True
        self._stop(0.0)

    @_ends_only_this_pod
    def look(self) -> None:
        """The clock may have been moved."""
        if not self.over.is_set():
            self.feed(Tick(self.house.now()))

    @_ends_only_this_pod
    def stop(self, kill: bool) -> None:
        self.feed(Stop(self.house.now(), 0.0 if kill else self.life.grace, deleting=False))

    @_ends_only_this_pod
    def evict(self, kill: bool) -> None:
        """The node goes, and says so: whoever made the pod knows that it did not fail by itself."""
        if not self.life.over:
            self._disrupted = True
            self.feed(Stop(self.house.now(), 0.0 if kill else self.life.grace, deleting=False, failure=GOING))

    async def abandon(self) -> None:
        """The node ends. What is still under way is of no use: a write for which nobody is there, a retry."""
        if self._timer:
            self._timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @_ends_only_this_pod
    def exited(self, container: str, run: int, code: int, reason: str, unsaved: dict[str, Any]) -> None:
        self._starter.unsaved.add(container, unsaved)
        one = self.life.named(container)
        if one.run != run:
            return
        if one.at is lifecycle.At.RUNNING:
            self._ended(container, run, code, reason)
        else:
            self._early[container] = code, reason  # heard in one breath with its start, which is told a moment later

    def _ended(self, name: str, run: int, code: int, reason: str) -> None:
        container = next(one for one, _ in containers(self.pod) if one.get("name") == name)
        said = messages.read(container, messages.file_of(self.folder, name, run), self.logs.path(name, run), code)
        self.feed(Ended(self.house.now(), name, code, reason, said))

    @_ends_only_this_pod
    def lost(self) -> None:
        """The helper died, and every process with it."""
        self._starter.lost()
        for one in self.life.containers:
            if one.at is lifecycle.At.RUNNING:
                message = "the process that holds this node's pods was killed"
                self.feed(Ended(self.house.now(), one.name, 137, "Error", message))

    def _stop(self, grace: float) -> None:
        if not self.life.over:
            self.feed(Stop(self.house.now(), grace))
        elif not self._leaving:
            self._finish(deleting=True)

    def fail(self, error: BaseException) -> None:
        """An exception in what was done for this pod: the pod ends with it as its reason, and its programs are killed.
        When that fails, too, without its lifecycle."""
        text = str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        log.error("a pod ends because of an error in the node pod=%s", self.life.name, exc_info=error)
        self._failures += 1
        if self._failures == 1:
            self.house.say(f"node: pod {self.life.name} ends: {text}")
            try:
                if not self.life.over:
                    self.feed(Stop(self.house.now(), 0.0, deleting=False, failure=(UNEXPECTED, text)))
                    return
            except Exception:
                log.exception("a pod's lifecycle does not go on pod=%s", self.life.name)
            self._failures += 1
        if self._failures == 2:
            self._later(self._give_up((UNEXPECTED, text)))

    async def _give_up(self, failure: tuple[str, str]) -> None:
        """Kill what runs, give back what the pod holds, write its end."""
        life = self.life
        self.life = replace(
            life,
            containers=tuple(
                one if one.at in lifecycle.OVER else replace(one, at=lifecycle.At.DROPPED) for one in life.containers
            ),
            failure=life.failure or failure,
        )
        self.house.network.directory.peers.pop(self.uid, None)
        if self._timer:
            self._timer.cancel()
        for one in life.containers:
            if one.at is lifecycle.At.RUNNING:
                await self.house.sandbox.signal(self._id(one.name, one.run), True)
        with contextlib.suppress(OSError, SandboxError, Failed):
            await self._starter.leave()
        self._give_back()
        try:
            if self._writing and not self._writing.done():
                await asyncio.wait([self._writing])
            if self._vanished:
                self._gone(self)
            elif self._leaving or self.life.deleting or self.pod["metadata"].get("deletionTimestamp"):
                await self.house.cluster.forget(self.pod)
                self._gone(self)
            elif self._written.get("phase") not in ("Succeeded", "Failed") and not self.house.closing:
                await self.house.cluster.end_pod(self.pod, *failure)
        finally:
            self.told.set()

    def _give_back(self) -> None:
        """The address, once; from now on the pod is over."""
        if self.address and not self.over.is_set():
            self.house.network.release(self.pod, self.address)
        self.over.set()

    # The lifecycle and its actions.

    def feed(self, event: lifecycle.Event) -> None:
        before = self.life
        self.life, actions = lifecycle.step(self.life, event)
        for action in actions:
            self._act(action)
        self._record(events.of_step(before, self.life, event, self.place().images))
        self._announce()
        if not isinstance(event, Tick) or self.life.over:
            self._write()

    def _act(self, action: lifecycle.Action) -> None:
        match action:
            case Start(container, run):
                task = self._later(self._start(container, run))
                self._starts[container] = task
            case Cancel(container):
                if container not in self._spawning and self._starts[container] is not asyncio.current_task():
                    self._starts[container].cancel()
                    self._later(self._dropped(container))
            case Signal(container, kill):
                run = self.life.named(container).run
                self._later(self.house.sandbox.signal(self._id(container, run), kill))
            case Wake(at):
                if self._timer:
                    self._timer.cancel()
                delay = max(0.0, at - self.house.now())
                self._timer = asyncio.get_running_loop().call_later(delay, self.look)
            case Over():
                self._finish(self.life.deleting)

    def _warn(self, reason: str, message: str) -> None:
        self._record([events.PodEvent("Warning", reason, message)])

    def _record(self, said: list[events.PodEvent]) -> None:
        ours = OWNER not in labels_of(self.pod) and not self.house.closing
        if ours and said and self._events.put(said):
            self._later(self._events.run())

    def _later(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self.fail(error)

    async def _dropped(self, container: str) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await self._starts[container]
        self.feed(Dropped(self.house.now(), container))

    def _announce(self) -> None:
        """Tell the neighbours: a name is there from the moment the pod has an address until it is over. Services send
        nobody to a pod that is being stopped."""
        peers = self.house.network.directory.peers
        if self.life.over:
            peers.pop(self.uid, None)
        else:
            ready = status.is_ready(self.life) and self.life.kill_at is None
            peers[self.uid] = peer_of(self.pod, self.address, ready)

    def _finish(self, deleting: bool) -> None:
        self._leaving = self._leaving or deleting
        if self._timer:
            self._timer.cancel()
        self._later(self._clean(deleting))

    async def _clean(self, deleting: bool) -> None:
        await self._starter.leave()
        if self._report is None:
            self._report = self._later(self._report_unsaved())
        await asyncio.wait([self._report])
        self._give_back()
        if self.house.closing:
            return
        while self._writing and not self._writing.done():
            await asyncio.wait([self._writing])
        if deleting:
            if self._event:  # before the object goes, where we are the ones who delete it
                await asyncio.wait([self._event], timeout=_EVENT_SECONDS)
            if not self._vanished:
                await self.house.cluster.forget(self.pod)
            with contextlib.suppress(OSError):
                await asyncio.to_thread(remove, self.folder)
            self._gone(self)
        self.told.set()

    async def _report_unsaved(self) -> None:
        """Say, and write as an Event, which files the pod's programs have left where they go with it."""
        if message := await asyncio.to_thread(self._starter.unsaved.message, whole_pod=not self.quiet):
            self.house.say(f"{replica_name(self.pod)}: {message}")
            if not self.house.closing:
                event = events.PodEvent("Normal", FILES_LOST, message)
                self._event = self._later(self.house.cluster.write_event(self.pod, event, self.house.now()))

    # Status.

    def place(self) -> status.Place:
        images = {str(one.get("name")): str(one.get("image") or "") for one, _ in containers(self.pod)}
        qos = str((self.pod.get("status") or {}).get("qosClass") or "BestEffort")
        return status.Place(self.house.network.host_ip, self.address, images, qos, self._starter.interpreters)

    def _write(self) -> None:
        if (self._writing is None or self._writing.done()) and not (self._vanished or self.quiet or self.house.closing):
            self._writing = self._later(self._keep_writing())

    async def _keep_writing(self) -> None:
        refusals, refusal = Backoff(*_REFUSED), ""
        while not self.house.closing:
            wanted = status.status(self.life, self.place(), self._conditions(), self.house.now())
            if wanted == self._written:
                return
            try:
                written = await self.house.cluster.write_status(self.pod, wanted)
            except Conflict:  # somebody else wrote, a condition perhaps: look, and write what is still ours to say
                written = await self.house.cluster.pod(self.pod)
            except ApiError as error:  # this status is refused: a later one may not be, and the rule may go
                if str(error) != refusal:
                    refusal = str(error)
                    self.house.say(f"node: pod {self.life.name}: the API server refuses its status: {refusal}")
                if self._leaving:
                    return
                await asyncio.sleep(refusals.next_delay())
                continue
            else:
                self._written = wanted
            if written is None:
                self._vanished = True
                return
            self._take(written)

    def _conditions(self) -> list[Json]:
        """Ours as we last wrote them, those of others as we last saw them."""
        seen = (self.pod.get("status") or {}).get("conditions") or []
        kinds = _OURS | {DISRUPTED} if self._disrupted else _OURS
        ours = [one for one in self._written.get("conditions") or seen if one.get("type") in kinds]
        found = [*ours, *(one for one in seen if one.get("type") not in kinds)]
        if self._disrupted:
            found = with_condition(found, DISRUPTED, True, "TerminationByKubelet", GOING[1], self.house.now())
        return found

    def _take(self, pod: Json) -> None:
        """Keep the newer of two views: the answer to a write may come before or after the watch's line."""
        if int(revision_of(pod) or 0) >= int(revision_of(self.pod) or 0):
            self.pod = pod

    # Starting a container.

    async def _start(self, name: str, run: int) -> None:
        try:
            await self._try_start(name, run)
        except Failed as failed:
            self.feed(Ended(self.house.now(), name, failed.code, failed.reason, failed.message))
        except Hopeless as hopeless:
            self.feed(Stop(self.house.now(), 0.0, deleting=False, failure=("StartError", str(hopeless))))
            self.feed(Ended(self.house.now(), name, 128, "StartError", str(hopeless)))
        except (OSError, SandboxError, TooLong) as error:
            self.feed(Ended(self.house.now(), name, 128, "StartError", str(error)))
        finally:
            self._spawning.discard(name)

    async def _try_start(self, name: str, run: int) -> None:
        def blocked(reason: str, message: str) -> None:
            self.feed(Blocked(self.house.now(), name, reason, message))

        container = next(one for one, _ in containers(self.pod) if one.get("name") == name)
        process = await self._starter.process(container, self._id(name, run), blocked)
        self._spawning.add(name)
        fd = self.logs.open(name, run, self.house.once)
        try:
            await self.house.sandbox.spawn(process, fd)
        finally:
            os.close(fd)
        self.feed(Started(self.house.now(), name))
        if name in self._early:
            self._ended(name, run, *self._early.pop(name))

    def _id(self, container: str, run: int) -> str:
        return f"{self.uid}/{container}/{run}"

    # Logs.

    def log(self, name: str, previous: bool) -> Log:
        one = next((each for each in self.life.containers if each.name == name), None)
        pod = name_of(self.pod)
        if one is None:
            raise Refused(400, f"container {name} is not valid for pod {pod}")
        run = one.current - 1 if previous else one.current
        path = self.logs.path(name, run)
        if run < 1 or not path.exists():
            if previous:
                raise Refused(400, f'previous terminated container "{name}" in pod "{pod}" not found')
            if run >= 1 and self.logs.removed:
                raise Refused(404, f'the log of container "{name}" in pod "{pod}" is no longer kept')
            raise Refused(400, f'container "{name}" in pod "{pod}" is waiting to start: {one.reason or "no log yet"}')
        return Log(path, lambda: not self._is_running(name, run))

    # Further programs (exec).

    def enter(self, name: str, asked: exec.Asked) -> exec.Start:
        """How to start another program in that container, which must be running."""
        where = f"pod {namespace_of(self.pod)}/{name_of(self.pod)}"
        one = next((each for each in self.life.containers if each.name == name), None)
        if one is None:
            raise Refused(404, f'container not found ("{name}"): {where} has no such container')
        if one.at is not lifecycle.At.RUNNING:
            raise Refused(500, f'cannot exec in the container "{name}" of {where}: it is not running ({one.at})')
        process = self._starter.beside(name, asked.command, asked.tty)
        return lambda streams: self.house.sandbox.execute(process, streams, asked.tty)

    def _is_running(self, name: str, run: int) -> bool:
        one = self.life.named(name)
        return one.run == run and one.at is lifecycle.At.RUNNING


def _life(pod: Json) -> lifecycle.Pod:
    spec = pod.get("spec") or {}
    grace = spec.get("terminationGracePeriodSeconds")
    deadline = spec.get("activeDeadlineSeconds")
    return lifecycle.Pod(
        name=f"{name_of(pod)}_{namespace_of(pod)}",
        uid=uid_of(pod),
        policy=str(spec.get("restartPolicy") or "Always"),
        containers=tuple(lifecycle.Container(str(one.get("name")), init) for one, init in containers(pod)),
        grace=float(grace) if grace is not None else _GRACE,
        deadline=float(deadline) if deadline is not None else None,
    )


def folder_name(namespace: str, name: str, uid: str) -> str:
    """The name of a pod's folder. Names of pods may be nearly as long as a file's name: that of the folder is cut."""
    return f"{namespace}_{name[: _LONGEST_NAME - len(namespace) - len(uid) - 2]}_{uid}"
