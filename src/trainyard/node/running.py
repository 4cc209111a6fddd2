"""One pod on this node: carries out what the lifecycle decides, and tells it what came of it.

Rules:
- Only `feed` changes the lifecycle, and it never waits: what takes time is a task that feeds an event at its end.
- Statuses are written one at a time and only when they differ from the last; what happens meanwhile is in the next.
- A pod that is over frees its network and processes at once; its logs stay until its object is gone."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainyard.node import lifecycle, paths, status
from trainyard.node.cluster import Cluster, capacity
from trainyard.node.images import ImageProblem, Images, Prepared
from trainyard.node.kubelet import Log, NoLog
from trainyard.node.lifecycle import Blocked, Cancel, Dropped, Ended, Over, Signal, Start, Started, Stop, Tick, Wake
from trainyard.node.names import hostname_of, peer_of
from trainyard.node.network import Network
from trainyard.node.pods import Given, Missing, command_line, containers, environment, inherited, references
from trainyard.node.sandbox import Failed, Mount, Process, Sandbox, SandboxError
from trainyard.node.volumes import Hopeless, Room, Volume, build
from trainyard.node.words import expand
from trainyard.objects import Json, name_of, namespace_of, uid_of

log = logging.getLogger(__name__)

_GRACE = 30.0
_PULL_SHOWN_AFTER = 0.5  # an image that is ready sooner is not worth a status
_FIRST_RETRY, _LONGEST_RETRY = 10.0, 300.0


@dataclass(slots=True)
class House:
    """What all pods of a node share."""

    cluster: Cluster
    sandbox: Sandbox
    network: Network
    images: Images
    state: Path
    mounts: Mapping[str, Path]
    say: Callable[[str], object]
    now: Callable[[], float] = time.time
    said: set[str] = field(default_factory=set)
    closing: bool = False

    def once(self, text: str) -> None:
        if text not in self.said:
            self.said.add(text)
            self.say(text)


class Running:
    def __init__(self, house: House, pod: Json, gone: Callable[[Running], None]) -> None:
        self.house, self.pod, self._gone = house, pod, gone
        self.uid = uid_of(pod)
        self.folder = house.state / "pods" / f"{namespace_of(pod)}_{name_of(pod)}_{self.uid}"
        self.life = _life(pod)
        self.over = asyncio.Event()
        self.address = ""
        self._housed = False
        self._housing = asyncio.Lock()
        self._volumes: dict[str, Volume] = {}
        self._starts: dict[str, asyncio.Task[None]] = {}
        self._spawning: set[str] = set()
        self._early: dict[str, int] = {}  # exit codes of runs whose start has not been told yet
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._written: Json = {}
        self._writing: asyncio.Task[None] | None = None
        self._vanished = False
        self._leaving = False

    # What the node tells.

    def begin(self) -> None:
        self.address = self.house.network.allot(self.pod)
        self._announce()
        self.feed(Tick(self.house.now()))

    def seen(self, pod: Json) -> None:
        """The object has changed. Of its changes only deletion concerns a pod that is placed."""
        self.pod = pod
        meta = pod["metadata"]
        if meta.get("deletionTimestamp"):
            grace = meta.get("deletionGracePeriodSeconds")
            self._stop(float(grace) if grace is not None else _GRACE)

    def vanished(self) -> None:
        """The object is gone, so the pod must go: at once."""
        self._vanished = True
        self._stop(0.0)

    def look(self) -> None:
        """The clock may have been moved."""
        if not self.over.is_set():
            self.feed(Tick(self.house.now()))

    def stop(self, kill: bool) -> None:
        self.feed(Stop(self.house.now(), 0.0 if kill else self.life.grace, deleting=False))

    def exited(self, container: str, run: int, code: int) -> None:
        one = self.life.named(container)
        if one.run != run:
            return
        if one.at is lifecycle.At.RUNNING:
            self.feed(Ended(self.house.now(), container, code))
        else:
            self._early[container] = code  # heard in one breath with its start, which is told a moment later

    def lost(self) -> None:
        """The helper died, and every process with it."""
        self._housed = False
        for one in self.life.containers:
            if one.at is lifecycle.At.RUNNING:
                message = "the process that holds this node's pods was killed"
                self.feed(Ended(self.house.now(), one.name, 137, "Error", message))

    def _stop(self, grace: float) -> None:
        if not self.life.over:
            self.feed(Stop(self.house.now(), grace))
        elif not self._leaving:
            self._finish(deleting=True)

    # The lifecycle and its actions.

    def feed(self, event: lifecycle.Event) -> None:
        self.life, actions = lifecycle.step(self.life, event)
        for action in actions:
            self._act(action)
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
                self._timer = asyncio.get_running_loop().call_later(delay, lambda: self.feed(Tick(self.house.now())))
            case Over():
                self._finish(self.life.deleting)

    def _later(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("a bug in the node pod=%s", self.life.name, exc_info=error)
            self.house.say(f"node: pod {self.life.name}: a bug of ours: {error!r}")

    async def _dropped(self, container: str) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await self._starts[container]
        self.feed(Dropped(self.house.now(), container))

    def _announce(self) -> None:
        """Tell the neighbours: a name is there from the moment the pod has an address until it is over."""
        peers = self.house.network.directory.peers
        if self.life.over:
            peers.pop(self.uid, None)
        else:
            peers[self.uid] = peer_of(self.pod, self.address, status.is_ready(self.life))

    def _finish(self, deleting: bool) -> None:
        self._leaving = self._leaving or deleting
        if self._timer:
            self._timer.cancel()
        self._later(self._clean(deleting))

    async def _clean(self, deleting: bool) -> None:
        if self._housed:
            self._housed = False
            await self.house.sandbox.remove_pod(self.uid)
        if self.address and not self.over.is_set():
            self.house.network.release(self.pod, self.address)
        self.over.set()
        if not deleting or self.house.closing:
            return
        while self._writing and not self._writing.done():
            await asyncio.wait([self._writing])
        if not self._vanished:
            await self.house.cluster.forget(self.pod)
        await asyncio.to_thread(shutil.rmtree, self.folder, True)
        self._gone(self)

    # Status.

    def place(self) -> status.Place:
        images = {str(one.get("name")): str(one.get("image") or "") for one, _ in containers(self.pod)}
        return status.Place(self.house.network.host_ip, self.address, images)

    def _write(self) -> None:
        if (self._writing is None or self._writing.done()) and not self._vanished and not self.house.closing:
            self._writing = self._later(self._keep_writing())

    async def _keep_writing(self) -> None:
        while not self.house.closing:
            known = (self.pod.get("status") or {}).get("conditions") or []
            wanted = status.status(self.life, self.place(), self._written.get("conditions") or known, self.house.now())
            if wanted == self._written:
                return
            self._written = wanted
            if not await self.house.cluster.write_status(self.pod, wanted):
                self._vanished = True
                return

    # Starting a container.

    def _id(self, container: str, run: int) -> str:
        return f"{self.uid}/{container}/{run}"

    async def _start(self, name: str, run: int) -> None:
        try:
            await self._try_start(name, run)
        except Failed as failed:
            self.feed(Ended(self.house.now(), name, failed.code, failed.reason, failed.message))
        except Hopeless as hopeless:
            self.feed(Stop(self.house.now(), 0.0, deleting=False, failure=("StartError", str(hopeless))))
            self.feed(Ended(self.house.now(), name, 128, "StartError", str(hopeless)))
        except (OSError, SandboxError) as error:
            self.feed(Ended(self.house.now(), name, 128, "StartError", str(error)))
        finally:
            self._spawning.discard(name)

    async def _try_start(self, name: str, run: int) -> None:
        container = next(one for one, _ in containers(self.pod) if one.get("name") == name)
        self._ignored(container)
        prepared = await self._image(container)
        process = await self._described(container, run, prepared)
        log = self.log_path(name, run)
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log_path(name, run - 2).unlink(missing_ok=True)  # the last run and the one before it are kept
        self._spawning.add(name)
        fd = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_TRUNC, 0o600)
        try:
            await self.house.sandbox.spawn(process, fd)
        finally:
            os.close(fd)
        self.feed(Started(self.house.now(), name))
        if name in self._early:
            self.feed(Ended(self.house.now(), name, self._early.pop(name)))

    def _ignored(self, container: Json) -> None:
        """Say once what cannot be honoured here."""
        limits = (container.get("resources") or {}).get("limits") or {}
        for resource in limits:
            if resource not in ("cpu", "memory") and not resource.startswith(("hugepages-", "ephemeral-")):
                self.house.once(f"node: this machine has no {resource}; pods that ask for it run without")
        contexts = (container.get("securityContext") or {}, (self.pod.get("spec") or {}).get("securityContext") or {})
        if (self.pod.get("spec") or {}).get("hostNetwork") and self.house.network.name == "namespace":
            self.house.once(
                "node: hostNetwork is ignored; with --network shared all pods are on this machine's network"
            )
        if any("runAsUser" in one for one in contexts):
            self.house.once("node: runAsUser is ignored; every pod runs as the user who started trainyard")

    async def _image(self, container: Json) -> Prepared:
        """The image, ready. Shows that it takes long; tries again when it fails, longer each time."""
        name, image = str(container["name"]), str(container.get("image") or "")
        wait = _FIRST_RETRY
        while True:
            work = asyncio.ensure_future(
                self.house.images.prepare(image, not container.get("command"), bool(container.get("args")))
            )
            try:
                done, _ = await asyncio.wait([work], timeout=_PULL_SHOWN_AFTER)
                if not done:
                    self.feed(Blocked(self.house.now(), name, "PullingImage", f'Pulling image "{image}"'))
                return await work
            except ImageProblem as problem:
                self.feed(Blocked(self.house.now(), name, problem.reason, problem.message))
            except asyncio.CancelledError:
                work.cancel()
                raise
            await asyncio.sleep(wait)
            wait = min(2 * wait, _LONGEST_RETRY)

    async def _described(self, container: Json, run: int, prepared: Prepared) -> Process:
        """The process that the container is. Waits for what it refers to."""
        namespace, refs = namespace_of(self.pod), references(self.pod)
        while True:
            found = await self.house.cluster.fetch(namespace, refs)
            try:
                given = Given(self._with_addresses(), found, capacity())
                await self._house(given)
                return self._process(container, run, prepared, given)
            except Missing as missing:
                self.feed(Blocked(self.house.now(), str(container["name"]), missing.reason, missing.message))
                if missing.ref is None:
                    await asyncio.Event().wait()  # no change of another object can help; a deletion ends this
                else:
                    await self.house.cluster.changes(namespace, missing.ref, found.get(missing.ref))

    def _with_addresses(self) -> Json:
        known = {"podIP": self.address, "podIPs": [{"ip": self.address}], "hostIP": self.house.network.host_ip}
        return {**self.pod, "status": {**(self.pod.get("status") or {}), **known}}

    async def _house(self, given: Given) -> None:
        """Once per pod: its folders, its volumes, its namespaces."""
        async with self._housing:
            if self._housed:
                return
            for part in ("root", "tmp", "shm"):
                (self.folder / part).mkdir(parents=True, exist_ok=True, mode=0o700)
            (self.folder / "tmp").chmod(0o1777)
            room = Room(
                given,
                self.folder / "volumes",
                self.house.state / "claims",
                self.house.mounts,
                self.house.network.rewrite(self.pod),
                self.house.once,
            )
            for volume in (self.pod.get("spec") or {}).get("volumes") or []:
                self._volumes[str(volume.get("name"))] = build(volume, room)
            memory = [*room.memory, str(self.folder / "shm")]
            await self.house.sandbox.add_pod(self.uid, hostname_of(self.pod), self.address, memory)
            self._housed = True

    def _process(self, container: Json, run: int, prepared: Prepared, given: Given) -> Process:
        network = self.house.network
        alone = network.name == "namespace"
        base = {**inherited(os.environ, proxies=not alone), **prepared.env, **network.variables(self.pod)}
        base["PATH"] = ":".join([*prepared.path, base["PATH"]])
        base["HOSTNAME"] = hostname_of(self.pod)
        env = environment(container, given, base)
        argv = command_line(container, prepared.entrypoint, prepared.args, env)
        cwd = str(container.get("workingDir") or prepared.workdir or "/")
        mounts = self._mounts(container, env)
        if alone:
            mounts = [
                *_private(self.folder, prepared),
                *network.files(self.pod, self.address, self.folder / "etc"),
                *mounts,
            ]
        else:
            if why := paths.refusal(mounts):
                raise Hopeless(why)
            names, places = network.rewrite(self.pod), paths.rewriter(mounts)
            own = environment(container, given, {})
            env |= {name: places(names(value)) for name, value in own.items()}
            argv, cwd = [places(names(word)) for word in argv], places(cwd)
            mounts = []
        if not argv:
            raise Failed(128, "StartError", "no command specified")
        name = str(container["name"])
        return Process(self._id(name, run), self.uid, argv, env, cwd, str(self.folder / "root"), mounts)

    def _mounts(self, container: Json, env: Mapping[str, str]) -> list[Mount]:
        found = []
        for mount in container.get("volumeMounts") or []:
            volume = self._volumes.get(str(mount.get("name")))
            if volume is None:
                raise Hopeless(f"volumeMounts: there is no volume {mount.get('name')!r} in the pod")
            source = volume.path
            inner = mount.get("subPath") or expand(str(mount.get("subPathExpr") or ""), env)
            if inner:
                if os.path.isabs(inner) or ".." in inner.split("/"):
                    raise Hopeless(f"subPath {inner!r} must be relative and without '..'")
                source = source / inner
                if not source.exists() and not volume.readonly:
                    source.mkdir(parents=True)
            readonly = volume.readonly or bool(mount.get("readOnly"))
            target = os.path.normpath("/" + str(mount.get("mountPath")).lstrip("/"))
            found.append(Mount(str(source), target, readonly, volume.ours))
        return found

    # Logs.

    def log_path(self, container: str, run: int) -> Path:
        return self.folder / "logs" / container / f"{run}.log"

    def log(self, name: str, previous: bool) -> Log:
        one = next((each for each in self.life.containers if each.name == name), None)
        where = f"{namespace_of(self.pod)}/{name_of(self.pod)}"
        if one is None:
            raise NoLog(400, f"container {name} is not valid for pod {name_of(self.pod)}")
        run = one.run
        if one.at is not lifecycle.At.RUNNING and one.last and run > one.last.number:
            run = one.last.number  # the next run has not begun: its log would be empty
        if previous:
            run -= 1
        path = self.log_path(name, run)
        if run < 1 or not path.exists():
            which = "previous terminated container" if previous else "container"
            raise NoLog(400, f'{which} "{name}" in pod "{where}" is waiting to start: no log yet')
        return Log(path, lambda: not self._is_running(name, run))

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


def _private(folder: Path, prepared: Prepared) -> list[Mount]:
    """A temporary folder and shared memory of the pod's own. What the image needs of this machine's stays visible."""
    found = [Mount(str(folder / "tmp"), "/tmp", ours=True)]  # noqa: S108  (a mount point)
    found.append(Mount(str(folder / "shm"), "/dev/shm", ours=True))  # noqa: S108
    needed = {os.path.realpath(path) for path in (*prepared.path, sys.prefix, sys.base_prefix)}
    tops = {"/".join(path.split("/")[:3]) for path in {*needed, *prepared.path} if path.startswith("/tmp/")}  # noqa: S108
    return [*found, *(Mount(top, top) for top in sorted(tops))]
