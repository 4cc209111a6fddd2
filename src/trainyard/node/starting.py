"""From a container of a pod's spec to a process that can be started: image, references, volumes, namespaces, texts.

Rules:
- What time can cure is waited for, and said through `blocked`; what it cannot is `Hopeless`; the rest is `Failed`.
- The pod's folders, volumes and namespaces are made once, by whichever container comes first."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainyard.node import host_ports, messages, paths
from trainyard.node.cluster import Cluster
from trainyard.node.hub import beneath
from trainyard.node.images import WORKING_DIRECTORY, ImageProblem, Images, Prepared, interpreters, laid
from trainyard.node.names import hostname_of
from trainyard.node.network import Network, Rewrite
from trainyard.node.pods import (
    Given,
    Missing,
    command_line,
    containers,
    environment,
    inherited,
    memory_limit,
    references,
    told,
)
from trainyard.node.registration import capacity
from trainyard.node.sandbox import Failed, Mount, Process, Sandbox
from trainyard.node.tokens import Tokens
from trainyard.node.unsaved_files import UnsavedFiles, working_directory
from trainyard.node.volumes import Hopeless, Room, Volume, build
from trainyard.node.words import expand
from trainyard.objects import Json, labels, labels_of, namespace_of, uid_of
from trainyard.objects.ineffective import ineffective_fields
from trainyard.objects.labels import OWNER
from trainyard.objects.values import replace

UNBUFFERED = {"PYTHONUNBUFFERED": "1"}  # output appears as it is printed, and survives a kill
_PULL_SHOWN_AFTER = 0.5  # an image that is ready sooner is not worth a status
_FIRST_RETRY, _LONGEST_RETRY = 10.0, 300.0
_TMPDIR = "/pod-tmp"  # where a pod has a root of its own

Blocked = Callable[[str, str], None]  # reason and message of waiting
Warn = Callable[[str, str], None]  # reason and message of an event


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
    working_directory: Path | None = None  # of pods without the annotation
    scheduled: bool = False  # by the scheduler of a real cluster, which looks at its own fields
    log_folder: Callable[[Json], Path | None] = lambda pod: None  # where to keep a pod's logs; None: with the pod
    log_size: int = 0  # bytes that the log of one run takes at most, 0 for no bound

    def once(self, text: str) -> None:
        if text not in self.said:
            self.said.add(text)
            self.say(text)


class Starter:
    """Makes the processes of one pod, which has that folder and that address. `warn` writes an event about the pod."""

    def __init__(self, house: House, pod: Json, folder: Path, address: str, warn: Warn) -> None:
        self._house, self._pod, self._folder, self._address, self._warn = house, pod, folder, address, warn
        self._uid = uid_of(pod)
        self._housed = False
        self._housing = asyncio.Lock()
        self._volumes: dict[str, Volume] = {}
        self._tokens = Tokens(house.cluster, pod, house.now)
        self.interpreters: dict[str, str] = {}  # by container: the Python that its command runs with
        self._made: dict[str, tuple[Process, Rewrite]] = {}  # by container: the last process, and its mount paths
        self.unsaved = UnsavedFiles(working_directory(pod, house.working_directory), folder)

    async def process(self, container: Json, ident: str, blocked: Blocked) -> Process:
        """The process that the container is. Waits for its image and for what it refers to."""
        self._ignored(container)
        prepared = await self._image(container, blocked)
        namespace, refs = namespace_of(self._pod), references(self._pod)
        while True:
            found = await self._house.cluster.fetch(namespace, refs)
            try:
                tokens = {} if self._housed else await self._tokens.all()
                given = Given(self._with_addresses(), found, capacity(), tokens)
                await self._furnish(given)
                return self._described(container, ident, prepared, given)
            except Missing as missing:
                blocked(missing.reason, missing.message)
                if missing.ref is not None:
                    await self._house.cluster.changes(namespace, missing.ref, found.get(missing.ref))
                elif missing.again:
                    await asyncio.sleep(missing.again)
                else:
                    await asyncio.Event().wait()  # no change of another object can help; a deletion ends this

    def beside(self, name: str, command: list[str], tty: bool) -> Process:
        """Another program in a container that was started: its environment, its folder, its texts."""
        made, places = self._made[name]
        names = self._house.network.rewrite(self._pod)
        env = {"TERM": "xterm", **made.env} if tty else made.env
        return replace(made, argv=[places(names(word)) for word in host_ports.arguments(command, names)], env=env)

    async def leave(self) -> None:
        """Give the pod's namespaces back."""
        self._tokens.stop()
        if self._housed:
            self._housed = False
            await self._house.sandbox.remove_pod(self._uid)
        self._temporary.unlink(missing_ok=True)

    def lost(self) -> None:
        """The helper died, and the namespaces with it."""
        self._tokens.stop()
        self._housed = False

    @property
    def _temporary(self) -> Path:
        """TMPDIR on the shared network: a folder of the pod's own. The path is short, because sockets lie there."""
        return self._house.state / "t" / self._uid[:8]

    def _ignored(self, container: Json) -> None:
        """Say once what cannot be honoured here. What would change how the pod ends is refused."""
        name = container.get("name")
        if container.get("restartPolicy") == "Always":
            raise Hopeless(
                f"init container {name}: restartPolicy Always (a sidecar) is not offered by this node; "
                "make it an ordinary container"
            )
        if OWNER in labels_of(self._pod) and not self._house.scheduled:
            return  # `run` and `submit` have said it of the job
        for one in ineffective_fields(self._pod, stored=True, scheduled=self._house.scheduled):
            self._house.once(f"node: {one.field}: no effect on one machine: {one.reason}")

    async def _image(self, container: Json, blocked: Blocked) -> Prepared:
        """The image, ready. Shows that it takes long; tries again when it fails, longer each time."""
        image = str(container.get("image") or "")
        wait = _FIRST_RETRY
        while True:
            command, args = bool(container.get("command")), bool(container.get("args"))
            folder = str(container.get("workingDir") or self.unsaved.working_directory)
            work = asyncio.ensure_future(self._house.images.prepare(image, not command, args, folder))
            try:
                done, _ = await asyncio.wait([work], timeout=_PULL_SHOWN_AFTER)
                if not done:
                    blocked("PullingImage", f'Pulling image "{image}"')
                return await work
            except ImageProblem as problem:
                blocked(problem.reason, problem.message)
            except asyncio.CancelledError:
                work.cancel()
                raise
            await asyncio.sleep(wait)
            wait = min(2 * wait, _LONGEST_RETRY)

    def _with_addresses(self) -> Json:
        known = {"podIP": self._address, "podIPs": [{"ip": self._address}], "hostIP": self._house.network.host_ip}
        return {**self._pod, "status": {**(self._pod.get("status") or {}), **known}}

    async def _furnish(self, given: Given) -> None:
        """Once per pod: its folders, its volumes, its namespaces."""
        async with self._housing:
            if self._housed:
                return
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            for part, mode in (("root", 0o700), ("tmp", 0o1777), ("shm", 0o700)):
                beneath.make_directory(str(self._folder), part, mode)
            if not self._house.network.alone:
                self._temporary.parent.mkdir(exist_ok=True, mode=0o700)
                self._temporary.unlink(missing_ok=True)
                self._temporary.symlink_to(self._folder / "tmp")
            room = Room(
                given,
                self._folder / "volumes",
                self._house.state / "claims",
                self._house.mounts,
                self._texts,
                self._host_path_missing,
            )
            # Those with texts of their own come last: on the shared network the others' paths are written into them.
            asked = (self._pod.get("spec") or {}).get("volumes") or []
            for volume in sorted(asked, key=lambda one: "configMap" in one or "projected" in one):
                self._volumes[str(volume.get("name"))] = build(volume, room)
            memory = [*room.memory, str(self._folder / "shm")]
            try:
                await self._house.sandbox.add_pod(self._uid, hostname_of(self._pod), self._address, memory)
            except asyncio.CancelledError:
                self._housed = True  # the helper has heard of it, or will: `leave` gives it back
                raise
            self._housed = True
            self._tokens.keep_fresh(room.folder)

    def _host_path_missing(self, text: str) -> None:
        self._house.once(text)
        self._warn("HostPathMissing", text)

    def _texts(self, text: str) -> str:
        """What becomes of the texts of ConfigMaps."""
        text = self._house.network.rewrite(self._pod)(text)
        if self._house.network.alone:
            return text
        folder = self._folder / "volumes"
        mounts = {
            str(mount.get("mountPath")): self._volumes.get(name := str(mount.get("name")), Volume(folder / name)).path
            for one, _ in containers(self._pod)
            for mount in one.get("volumeMounts") or []
            if not mount.get("subPath") and not mount.get("subPathExpr")
        }
        return paths.rewriter([Mount(str(path), os.path.normpath(target)) for target, path in mounts.items()])(text)

    def _described(self, container: Json, ident: str, prepared: Prepared, given: Given) -> Process:
        network = self._house.network
        inherits = inherited(os.environ, proxies=not network.alone)
        base = {**inherits, **UNBUFFERED, **prepared.env, **network.variables(self._pod)}
        base["PATH"] = ":".join([*prepared.path, base["PATH"]])
        base["HOSTNAME"] = hostname_of(self._pod)
        base["TMPDIR"] = _TMPDIR if network.alone else str(self._temporary)
        prepared = self._in_working_directory(prepared)
        env = environment(container, given, base)
        argv = command_line(container, prepared.entrypoint, prepared.args, env)
        cwd = str(container.get("workingDir") or prepared.workdir or "/")
        message = messages.file_of(self._folder, str(container.get("name")), ident.rpartition("/")[2])
        volumes = self._mounts(container, env)
        mounts = [*self._laid(container, prepared), *volumes, messages.mount(container, message)]
        inits = (self._pod.get("spec") or {}).get("initContainers") or []
        if inits and container not in inits:
            self.unsaved.begin(message)
        places: Rewrite = str
        if network.alone:
            mounts = [
                Mount(str(self._folder / "tmp"), _TMPDIR, ours=True),
                Mount(str(self._folder / "shm"), "/dev/shm", ours=True),  # noqa: S108  (a mount point)
                *_needed(prepared, volumes),
                *network.files(self._pod, self._address, self._folder / "etc"),
                *mounts,
            ]
        else:
            if why := paths.refusal(mounts):
                raise Hopeless(why)
            names, places = network.rewrite(self._pod), paths.rewriter(mounts)
            own, itself = {**prepared.env, **environment(container, given, {})}, told(container)
            env |= host_ports.environment({name: env[name] for name in own.keys() - itself}, names)
            env |= {name: places(env[name] if name in itself else names(env[name])) for name in own}
            argv = [places(names(word)) for word in host_ports.arguments(argv, names)]
            cwd = places(cwd)
            mounts = []
        if not argv:
            raise Failed(128, "StartError", "no command specified")
        self.interpreters[str(container.get("name"))] = interpreters.of_command(argv, env.get("PATH", ""))
        memory = memory_limit(container)
        root = str(self._folder / "root")
        process = Process(ident, self._uid, argv, env, cwd, root, mounts, memory, self._house.log_size)
        self._made[str(container.get("name"))] = process, places
        return process

    def _in_working_directory(self, prepared: Prepared) -> Prepared:
        """An image that has no folder of its own runs in the folder that the pod names."""
        if prepared.workdir != WORKING_DIRECTORY:
            return prepared
        folder = self.unsaved.working_directory
        if folder and not os.path.isdir(folder):
            self._house.once(
                f"node: there is no folder {folder} on this machine, which the annotation {labels.WORKING_DIRECTORY} "
                "names; programs start in / instead"
            )
            folder = ""
        return replace(prepared, workdir=folder)

    def _laid(self, container: Json, prepared: Prepared) -> list[Mount]:
        """The image's own files and folders. What the pod mounts comes after them and wins."""
        folder = self._folder / "image" / str(container.get("name"))
        places = [(source, target, os.path.isdir(source)) for source, target in laid(prepared, folder)]
        for source, target, ours in places:
            if ours and not any(f"{scratch}/".startswith(f"{target}/") for scratch in prepared.scratch):
                self.unsaved.watch(source, target)
        return [Mount(source, target, readonly=not ours, ours=ours) for source, target, ours in places]

    def _mounts(self, container: Json, env: Mapping[str, str]) -> list[Mount]:
        found = []
        for mount in container.get("volumeMounts") or []:
            volume = self._volumes.get(str(mount.get("name")))
            if volume is None:
                raise Hopeless(f"volumeMounts: there is no volume {mount.get('name')!r} in the pod")
            source = volume.path
            inner = str(mount.get("subPath") or expand(str(mount.get("subPathExpr") or ""), env))
            if os.path.isabs(inner) or ".." in inner.split("/"):
                raise Hopeless(f"subPath {inner!r} must be relative and without '..'")
            if (
                inner and not self._house.network.alone
            ):  # there the container's init resolves it, and binds what it finds
                source, inner = _resolved(source, inner, not volume.readonly), ""
            readonly = volume.readonly or bool(mount.get("readOnly"))
            target = os.path.normpath("/" + str(mount.get("mountPath")).lstrip("/"))
            if volume.temporary:
                self.unsaved.watch(str(source / inner), target)
            found.append(Mount(str(source), target, readonly, volume.ours, inner, make=not volume.readonly))
        return found


def _resolved(folder: Path, path: str, make: bool) -> Path:
    """Where `path` beneath the folder of a volume is, its links followed. Raises Failed."""
    try:
        fd = beneath.resolve(str(folder), path, make)
    except OSError as error:
        raise Failed(128, "StartError", f"subPath {path!r}: {error.strerror}") from None
    try:
        return Path(os.readlink(f"/proc/self/fd/{fd}"))
    finally:
        os.close(fd)


def _needed(prepared: Prepared, volumes: list[Mount]) -> list[Mount]:
    """What the image needs of this machine stays visible where a volume of the pod hides the folder around it. Not in
    folders of the user: without mount points there, new files would be in memory (see hub/root.py)."""
    real = {os.path.realpath(path) for path in (*prepared.path, *prepared.files.values())}
    needed = {*prepared.path, *real, *map(os.path.realpath, (sys.prefix, sys.base_prefix))}
    found = set()
    for target in {f"{volume.target.rstrip('/')}/" for volume in volumes if volume.ours}:
        found |= {target + path.removeprefix(target).split("/")[0] for path in needed if path.startswith(target)}
    return [Mount(path, path) for path in sorted(found)]
