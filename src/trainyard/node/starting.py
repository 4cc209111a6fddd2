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
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainyard.node import messages, paths
from trainyard.node.cluster import Cluster
from trainyard.node.images import ImageProblem, Images, Prepared, laid
from trainyard.node.names import hostname_of
from trainyard.node.network import Network, Rewrite
from trainyard.node.pods import Given, Missing, command_line, containers, environment, inherited, references, told
from trainyard.node.registration import capacity
from trainyard.node.sandbox import Failed, Mount, Process, Sandbox
from trainyard.node.tokens import Tokens
from trainyard.node.volumes import Hopeless, Room, Volume, build
from trainyard.node.words import expand
from trainyard.objects import Json, namespace_of, uid_of

_PULL_SHOWN_AFTER = 0.5  # an image that is ready sooner is not worth a status
_FIRST_RETRY, _LONGEST_RETRY = 10.0, 300.0

Blocked = Callable[[str, str], None]  # reason and message of waiting


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


class Starter:
    """Makes the processes of one pod, which has that folder and that address."""

    def __init__(self, house: House, pod: Json, folder: Path, address: str) -> None:
        self._house, self._pod, self._folder, self._address = house, pod, folder, address
        self._uid = uid_of(pod)
        self._housed = False
        self._housing = asyncio.Lock()
        self._volumes: dict[str, Volume] = {}
        self._tokens = Tokens(house.cluster, pod, house.now)
        self._made: dict[str, tuple[Process, Rewrite]] = {}  # by container: the last process, and its mount paths

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
        return replace(made, argv=[places(names(word)) for word in command], env=env)

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
        """The pod's /tmp where it has no /tmp of its own; the path is short, because sockets lie in such folders."""
        return self._house.state / "t" / self._uid[:8]

    def _ignored(self, container: Json) -> None:
        """Say once what cannot be honoured here. What would change how the pod ends is refused."""
        name = container.get("name")
        if container.get("restartPolicy") == "Always":
            raise Hopeless(
                f"init container {name}: restartPolicy Always (a sidecar) is not offered by this node; "
                "make it an ordinary container"
            )
        for word in ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle"):
            if word in container:
                self._house.once(f"node: {word} is ignored; a container is ready while its program runs")
        limits = (container.get("resources") or {}).get("limits") or {}
        for resource in limits:
            if resource not in ("cpu", "memory") and not resource.startswith(("hugepages-", "ephemeral-")):
                self._house.once(f"node: this machine has no {resource}; pods that ask for it run without")
        contexts = (container.get("securityContext") or {}, (self._pod.get("spec") or {}).get("securityContext") or {})
        if (self._pod.get("spec") or {}).get("hostNetwork") and self._house.network.alone:
            self._house.once(
                "node: hostNetwork is ignored; with --network shared all pods are on this machine's network"
            )
        if any("runAsUser" in one for one in contexts):
            self._house.once("node: runAsUser is ignored; every pod runs as the user who started trainyard")

    async def _image(self, container: Json, blocked: Blocked) -> Prepared:
        """The image, ready. Shows that it takes long; tries again when it fails, longer each time."""
        image = str(container.get("image") or "")
        wait = _FIRST_RETRY
        while True:
            work = asyncio.ensure_future(
                self._house.images.prepare(image, not container.get("command"), bool(container.get("args")))
            )
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
            for part in ("root", "tmp", "shm"):
                (self._folder / part).mkdir(parents=True, exist_ok=True, mode=0o700)
            (self._folder / "tmp").chmod(0o1777)
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
                self._house.once,
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
        base = {**inherited(os.environ, proxies=not network.alone), **prepared.env, **network.variables(self._pod)}
        base["PATH"] = ":".join([*prepared.path, base["PATH"]])
        base["HOSTNAME"] = hostname_of(self._pod)
        if not network.alone:
            base["TMPDIR"] = str(self._temporary)
        env = environment(container, given, base)
        argv = command_line(container, prepared.entrypoint, prepared.args, env)
        cwd = str(container.get("workingDir") or prepared.workdir or "/")
        message = messages.file_of(self._folder, str(container.get("name")), ident.rpartition("/")[2])
        mounts = [*self._laid(container, prepared), *self._mounts(container, env), messages.mount(container, message)]
        places: Rewrite = str
        if network.alone:
            mounts = [
                *_private(self._folder, prepared),
                *network.files(self._pod, self._address, self._folder / "etc"),
                *mounts,
            ]
        else:
            if why := paths.refusal(mounts):
                raise Hopeless(why)
            names, places = network.rewrite(self._pod), paths.rewriter(mounts)
            own, itself = {**prepared.env, **environment(container, given, {})}, told(container)
            env |= {name: places(env[name] if name in itself else names(env[name])) for name in own}
            argv, cwd = [places(names(word)) for word in argv], places(cwd)
            mounts = []
        if not argv:
            raise Failed(128, "StartError", "no command specified")
        process = Process(ident, self._uid, argv, env, cwd, str(self._folder / "root"), mounts)
        self._made[str(container.get("name"))] = process, places
        return process

    def _laid(self, container: Json, prepared: Prepared) -> list[Mount]:
        """The image's own files and folders. What the pod mounts comes after them and wins."""
        folder = self._folder / "image" / str(container.get("name"))
        places = [(source, target, os.path.isdir(source)) for source, target in laid(prepared, folder)]
        return [Mount(source, target, readonly=not ours, ours=ours) for source, target, ours in places]

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


def _private(folder: Path, prepared: Prepared) -> list[Mount]:
    """A temporary folder and shared memory of the pod's own. What the image needs of this machine's stays visible."""
    found = [Mount(str(folder / "tmp"), "/tmp", ours=True)]  # noqa: S108  (a mount point)
    found.append(Mount(str(folder / "shm"), "/dev/shm", ours=True))  # noqa: S108
    needed = {
        os.path.realpath(path) for path in (*prepared.path, *prepared.files.values(), sys.prefix, sys.base_prefix)
    }
    tops = {"/".join(path.split("/")[:3]) for path in {*needed, *prepared.path} if path.startswith("/tmp/")}  # noqa: S108
    return [*found, *(Mount(top, top) for top in sorted(tops))]
