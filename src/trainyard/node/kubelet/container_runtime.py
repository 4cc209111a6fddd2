"""Turns a container of a pod's spec into a process to start: image, ConfigMaps and Secrets, volumes, namespaces, texts.

Rules:
- An obstacle that can go away (a missing ConfigMap) is waited for and reported through `blocked`; one that cannot
  raises `FatalStartError`, which fails the pod; any other raises `StartError`, which ends this run of the container.
- The pod's folders, volumes and namespaces are created once, by the first container that starts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from trainyard.controller_runtime import Backoff
from trainyard.node.devices.manager import DevicesUnavailable
from trainyard.node.devices.visibility import VARIABLES
from trainyard.node.images import WORKING_DIRECTORY, ImageProblem, PreparedImage, interpreters
from trainyard.node.kubelet import image_mounts, termination_message
from trainyard.node.kubelet.node_context import NodeContext
from trainyard.node.kubelet.pod_record import PodRecord
from trainyard.node.kubelet.registration import capacity
from trainyard.node.kubelet.spec.interpolation import expand
from trainyard.node.kubelet.spec.pod_spec import (
    ConfigRef,
    EnvContext,
    Missing,
    command_line,
    environment,
    field_variables,
    memory_limit,
    mounted_volumes,
    references,
    with_addresses,
)
from trainyard.node.kubelet.spec.security_context import fs_group, user_of, with_programs
from trainyard.node.kubelet.tokens import Tokens
from trainyard.node.kubelet.usage.progress import METRICS_FILE
from trainyard.node.kubelet.volumes import mount_paths
from trainyard.node.kubelet.volumes.unsaved_files import UnsavedFiles, working_directory
from trainyard.node.kubelet.volumes.volumes import FatalStartError, Volume, VolumeContext, build, give_to_group
from trainyard.node.network import host_ports
from trainyard.node.network.address_rewrite import is_hostfile
from trainyard.node.network.directory import hostname_of, own_hostname_of
from trainyard.node.network.interface_variables import left_out, without_pod_interface
from trainyard.node.network.pod_network import Rewrite
from trainyard.node.sandbox.inherited_environment import CPU_ONLY, for_devices, for_other_user, inherited
from trainyard.node.sandbox.supervisor_client import Mount, Process, StartError, User
from trainyard.node.supervisor import safe_paths
from trainyard.objects import Json, labels, labels_of, namespace_of, pod_containers
from trainyard.objects.ineffective_fields import ineffective_fields
from trainyard.objects.labels import OWNER
from trainyard.objects.structs import replace

UNBUFFERED = {"PYTHONUNBUFFERED": "1"}  # output is in the log as soon as it is printed, also when the program is killed
# torchrun of torch 1.13 (Debian's) stops on Python 3.11 when nothing is redirected. These redirect nothing either: they
# name no default, and the files of a local rank that hardly any pod has.
TORCHRUN = {"PET_REDIRECTS": "9:0", "PET_TEE": "9:0"}
_PULL_SHOWN_AFTER = 0.5  # seconds; for an image that is ready sooner no PullingImage is written
_FIRST_RETRY, _LONGEST_RETRY = 10.0, 300.0
_TOKEN_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 (no secret)
_TMPDIR = "/pod-tmp"  # TMPDIR of containers with their own root folder (network namespace)

Blocked = Callable[[str, str], None]  # reason and message of state.waiting
Warn = Callable[[str, str], None]  # reason and message of an event


class ContainerRuntime:
    """Creates the processes of one pod. `warn` writes a Warning event."""

    def __init__(self, node_context: NodeContext, record: PodRecord, warn: Warn) -> None:
        self._context, self._record, self._warn = node_context, record, warn
        # The object as it was when its worker was created: of a later change only labels and annotations reach its
        # containers, when they are started again.
        self._pod, self._folder, self._uid = record.pod, record.folder, record.uid
        self._sandbox_ready = False
        self._sandbox_lock = asyncio.Lock()
        self._volumes: dict[str, Volume] = {}
        self._volumes_name_token = False  # a file of a ConfigMap names the folder of the token
        self._tokens = Tokens(node_context.cluster, self._pod, node_context.now)
        self.interpreters: dict[str, str] = {}  # container name -> path of the Python that runs its command
        # Container name -> its last process and the function that rewrites mount paths.
        self.last_processes: dict[str, tuple[Process, Rewrite]] = {}
        self.unsaved = UnsavedFiles(working_directory(self._pod, node_context.working_directory), self._folder)
        # TMPDIR on the shared network: a link to the pod's tmp folder. The path is short because programs make Unix
        # sockets in TMPDIR, and a socket's path is limited.
        self._tmpdir_link = node_context.state / "t" / self._uid[:8]

    @asynccontextmanager
    async def process(self, container: Json, run_id: str, blocked: Blocked) -> AsyncIterator[Process]:
        """The process for `container`, to be started in the block, which has a place of the node's start limiter. Waits
        for its image and for the ConfigMaps and Secrets it refers to, without a place. `run_id`: uid/container/run.
        Raises FatalStartError, StartError, TooLong, OSError, SandboxError."""
        self._report_ineffective_fields()
        prepared = await self._prepare_image(container, blocked)
        try:
            await self._context.devices.assign(self._pod, blocked)
        except DevicesUnavailable as error:
            raise FatalStartError(str(error), "UnexpectedAdmissionError") from None
        namespace, refs = namespace_of(self._pod), references(self._pod)
        while True:
            objects: dict[ConfigRef, Json | None] = {}
            try:
                # The requests are in the place, too: those of all pods would go before the first start.
                async with self._context.start_limiter.place():
                    objects = await self._context.cluster.fetch(namespace, refs)
                    tokens = {} if self._sandbox_ready else await self._tokens.all()
                    pod = {**self._pod, "metadata": self._record.pod["metadata"]}
                    pod = with_addresses(pod, self._record.address, self._context.network.host_ip)
                    env_context = EnvContext(pod, objects, capacity(), tokens)
                    await self._create_pod_sandbox(env_context)
                    yield self._process_spec(container, run_id, prepared, env_context)
                    return
            except Missing as missing:
                blocked(missing.reason, missing.message)
                if missing.ref is not None:
                    await self._context.cluster.wait_for_change(namespace, missing.ref, objects.get(missing.ref))
                elif missing.retry_after:
                    await asyncio.sleep(missing.retry_after)
                else:
                    # Only the deletion of the pod ends this wait: no other object can change it.
                    await asyncio.Event().wait()

    def exec_process(self, name: str, command: list[str], tty: bool) -> Process:
        """A further program (exec) in a started container, with the container's environment, working directory and
        rewritten texts."""
        process, rewrite_paths = self.last_processes[name]
        rewrite_names = self._context.network.rewrite(self._pod)
        env = {"TERM": "xterm", **process.env} if tty else process.env
        return replace(
            process,
            argv=[rewrite_paths(rewrite_names(argument)) for argument in host_ports.arguments(command, rewrite_names)],
            env=env,
        )

    async def remove_pod(self) -> None:
        """Remove the pod's namespaces, its mount points and its TMPDIR link."""
        self._tokens.stop()
        if self._sandbox_ready:
            self._sandbox_ready = False
            await self._context.sandbox.remove_pod(self._uid)
        self._context.mount_points.release(self._uid)
        self._tmpdir_link.unlink(missing_ok=True)

    def supervisor_lost(self) -> None:
        """The supervisor died, and with it the pod's namespaces."""
        self._tokens.stop()
        self._sandbox_ready = False

    def _report_ineffective_fields(self) -> None:
        """Report once the fields of the spec without effect on this node."""
        if (self._pod.get("spec") or {}).get("hostnameOverride") and not self._context.network.isolated_network:
            text = "no effect in network shared: programs see the host name of this machine"
            self._context.print_once(f"node: hostnameOverride: {text}")
        if OWNER in labels_of(self._pod) and not self._context.has_scheduler:
            return  # `run` and `submit` have reported it for the job
        for ineffective in ineffective_fields(
            self._pod,
            stored=True,
            scheduled=self._context.has_scheduler,
            users=self._context.sandbox.changes_users,
            is_given_out=self._context.devices.capacity().__contains__,
        ):
            self._context.print_once(f"node: {ineffective.field}: no effect on one machine: {ineffective.reason}")

    async def _prepare_image(self, container: Json, blocked: Blocked) -> PreparedImage:
        """The prepared image. Reports PullingImage when it takes long; retries a failure with exponential back-off."""
        image = str(container.get("image") or "")
        backoff = Backoff(_FIRST_RETRY, _LONGEST_RETRY)
        while True:
            command, args = bool(container.get("command")), bool(container.get("args"))
            working_directory = str(container.get("workingDir") or self.unsaved.working_directory)
            preparation = asyncio.ensure_future(
                self._context.images.prepare(image, not command, args, working_directory)
            )
            try:
                done, _ = await asyncio.wait([preparation], timeout=_PULL_SHOWN_AFTER)
                if not done:
                    blocked("PullingImage", f'Pulling image "{image}"')
                return await preparation
            except ImageProblem as problem:
                blocked(problem.reason, problem.message)
            except asyncio.CancelledError:
                preparation.cancel()
                raise
            await asyncio.sleep(backoff.next_delay())

    async def _create_pod_sandbox(self, env_context: EnvContext) -> None:
        """Create the pod's folders, volumes and namespaces, once per pod."""
        async with self._sandbox_lock:
            if self._sandbox_ready:
                return
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            for name, mode in (("root", 0o700), ("tmp", 0o1777), ("shm", 0o700)):
                safe_paths.make_directory(str(self._folder), name, mode)
            if not self._context.network.isolated_network:
                self._tmpdir_link.parent.mkdir(exist_ok=True, mode=0o700)
                self._tmpdir_link.unlink(missing_ok=True)
                self._tmpdir_link.symlink_to(self._folder / "tmp")
            volume_context = VolumeContext(
                env_context,
                self._folder / "volumes",
                self._context.state / "claims",
                self._context.mounts,
                self._rewrite_text,
                self._host_path_missing,
            )
            # ConfigMap and projected volumes come last: on the shared network the paths of the others are written into
            # them.
            for volume in sorted(
                mounted_volumes(self._pod), key=lambda spec: "configMap" in spec or "projected" in spec
            ):
                self._volumes[str(volume.get("name"))] = build(volume, volume_context)
            group = fs_group(self._pod) if self._context.sandbox.changes_users else None
            tmpfs_group = -1 if group is None else group
            memory = {**dict.fromkeys(volume_context.tmpfs_folders, tmpfs_group), str(self._folder / "shm"): -1}
            try:
                await self._context.sandbox.add_pod(self._uid, own_hostname_of(self._pod), self._record.address, memory)
            except asyncio.CancelledError:
                self._sandbox_ready = True  # the supervisor has created the pod or will: `remove_pod` removes it
                raise
            if group is not None:
                await asyncio.to_thread(give_to_group, self._volumes.values(), group)
            self._sandbox_ready = True
            self._tokens.start_renewal(volume_context.folder)

    def _host_path_missing(self, text: str) -> None:
        self._context.print_once(text)
        self._warn("HostPathMissing", text)

    def _rewrite_text(self, text: str) -> str:
        """The text of a ConfigMap, with names and mount paths rewritten on the shared network."""
        if self._context.network.isolated_network or is_hostfile(text):
            return text
        self._volumes_name_token = self._volumes_name_token or _TOKEN_FOLDER in text
        text = self._context.network.rewrite(self._pod)(text)
        folder = self._folder / "volumes"
        mounts = {
            str(mount.get("mountPath")): self._volumes.get(name := str(mount.get("name")), Volume(folder / name)).path
            for container, _ in pod_containers(self._pod)
            for mount in container.get("volumeMounts") or []
            if not mount.get("subPath") and not mount.get("subPathExpr")
        }
        return mount_paths.rewriter([Mount(str(path), os.path.normpath(target)) for target, path in mounts.items()])(
            text
        )

    def _process_spec(self, container: Json, ident: str, prepared: PreparedImage, env_context: EnvContext) -> Process:
        context, name = self._context, str(container.get("name"))
        has_devices = bool(context.devices.of_container(self._pod, container))
        full_name = f"{self._record.state.name}({self._uid})"
        user = user_of(self._pod, container, full_name, context.sandbox.changes_users)
        user = user and with_programs(user, [*prepared.path, working_directory(self._pod, None)], context.print_once)
        base_env = self._base_environment(prepared, has_devices, user) | self._api_environment(container)
        prepared = _with_working_directory(prepared, self.unsaved.working_directory, context.print_once)
        stated = environment(container, env_context, {})
        env = {**base_env, **stated, **context.devices.environment(self._pod, container, stated)}
        argv = command_line(container, prepared.entrypoint, prepared.args, env)
        cwd = str(container.get("workingDir") or prepared.workdir or "/")
        message = termination_message.message_file(self._folder, name, ident.rpartition("/")[2])
        volumes = self._volume_mounts(container, env)
        files = image_mounts.mounts(prepared, self._folder / "image" / name, self.unsaved)
        mounts = [*files, *volumes, termination_message.mount(container, message)]
        inits = (self._pod.get("spec") or {}).get("initContainers") or []
        if inits and container not in inits:
            self.unsaved.init_containers_done(message)
        root, memory = str(self._folder / "root"), memory_limit(container)
        process = Process(ident, self._uid, argv, env, cwd, root, mounts, memory, context.log_size, user)
        rewrite_paths: Rewrite = str
        if context.network.isolated_network:
            process = replace(process, mounts=[*self._namespace_mounts(prepared, volumes), *mounts])
            context.mount_points.create(self._uid, process.mounts, cwd, self.unsaved.working_directory)
        else:
            if reason := mount_paths.refusal(mounts) or _ssh_server_refusal(process.argv):
                raise FatalStartError(reason)
            for note in mount_paths.notes(volumes):
                context.print_once(note)
            rewrite_paths = mount_paths.rewriter(mounts)
            own_env = {**prepared.env, **stated}
            process = self._rewrite_process(process, own_env, field_variables(container), rewrite_paths)
        if not process.argv:
            raise StartError(128, "StartError", "no command specified")
        self.interpreters[name] = interpreters.interpreter_of_command(process.argv, process.env.get("PATH", ""))
        self.last_processes[name] = process, rewrite_paths
        return process

    def _base_environment(self, prepared: PreparedImage, has_devices: bool, user: User | None) -> dict[str, str]:
        """The variables that every container of the pod with that image gets unless it sets them. `has_devices`: the
        container has some of the devices that this node gives out."""
        network = self._context.network
        is_own = not self._context.has_scheduler  # else they may be pods of other users of a real cluster
        inherited_env = inherited(os.environ, proxies=not network.isolated_network, personal=is_own)
        if self._context.devices.gives_out:  # the bounds of the shell are those of the node, not of each container
            inherited_env = {name: value for name, value in inherited_env.items() if name not in VARIABLES}
            inherited_env = inherited_env if has_devices else {**CPU_ONLY, **inherited_env}
        else:
            inherited_env = for_devices(inherited_env, os.listdir("/dev"))
        if user and user.uid != os.getuid():
            inherited_env = for_other_user(inherited_env, user.home)
        base_env = {**inherited_env, **UNBUFFERED, **TORCHRUN, **prepared.env, **network.environment(self._pod)}
        base_env["PATH"] = ":".join([*prepared.path, base_env["PATH"]])
        base_env["HOSTNAME"] = own_hostname_of(self._pod) if network.isolated_network else hostname_of(self._pod)
        base_env["TMPDIR"] = _TMPDIR if network.isolated_network else str(self._tmpdir_link)
        base_env["TRAINYARD_METRICS"] = f"{base_env['TMPDIR']}/{METRICS_FILE}"
        return base_env

    def _api_environment(self, container: Json) -> dict[str, str]:
        """The variables about the API server, where the program finds the token of its service account: many programs
        take them as a sign that it is at its fixed path. On the shared network it is elsewhere, and only texts of the
        pod that name the path are rewritten to the place where it is."""
        mounts = container.get("volumeMounts") or []
        if not any(os.path.normpath(str(mount.get("mountPath"))) == _TOKEN_FOLDER for mount in mounts):
            return {}
        values = [variable.get("value") for variable in container.get("env") or []]
        texts = map(str, [*(container.get("command") or []), *(container.get("args") or []), *values])
        network = self._context.network
        if network.isolated_network or self._volumes_name_token or any(_TOKEN_FOLDER in text for text in texts):
            return network.api_environment()
        return {}

    def _namespace_mounts(self, prepared: PreparedImage, volumes: list[Mount]) -> list[Mount]:
        """The mounts of every container in a mount namespace of its own."""
        return [
            Mount(str(self._folder / "tmp"), _TMPDIR, pod_owned=True),
            Mount(str(self._folder / "shm"), "/dev/shm", pod_owned=True),  # noqa: S108  (a mount point)
            *image_mounts.visible_below(prepared, volumes),
            *self._context.network.files(self._pod, self._record.address, self._folder / "etc"),
        ]

    def _rewrite_process(
        self, process: Process, own_env: Mapping[str, str], field_env: set[str], rewrite_paths: Rewrite
    ) -> Process:
        """The process on the shared network: without mounts and the interface of a pod; the names of other pods and the
        mount paths are rewritten in its texts. `own_env`: the variables of the container and its image; `field_env`:
        names of those with a fieldRef."""
        env, rewrite_names = dict(process.env), self._context.network.rewrite(self._pod)
        env |= host_ports.environment({name: env[name] for name in own_env.keys() - field_env}, rewrite_names)
        env |= {name: rewrite_paths(env[name] if name in field_env else rewrite_names(env[name])) for name in own_env}
        argv = [
            rewrite_paths(rewrite_names(argument)) for argument in host_ports.arguments(process.argv, rewrite_names)
        ]
        cwd = rewrite_paths(process.cwd)
        if note := left_out(env):
            self._context.print_once(note)
        return replace(process, argv=argv, env=without_pod_interface(env), cwd=cwd, mounts=[])

    def _volume_mounts(self, container: Json, env: Mapping[str, str]) -> list[Mount]:
        mounts = []
        for mount in container.get("volumeMounts") or []:
            volume = self._volumes.get(str(mount.get("name")))
            if volume is None:
                raise FatalStartError(f"volumeMounts: there is no volume {mount.get('name')!r} in the pod")
            source = volume.path
            subpath = str(mount.get("subPath") or expand(str(mount.get("subPathExpr") or ""), env))
            if os.path.isabs(subpath) or ".." in subpath.split("/"):
                raise FatalStartError(f"subPath {subpath!r} must be relative and without '..'")
            # In namespace mode the container's init resolves the subPath and mounts it.
            if subpath and not self._context.network.isolated_network:
                source, subpath = _resolve_subpath(source, subpath, not volume.readonly), ""
            readonly = volume.readonly or bool(mount.get("readOnly"))
            target = os.path.normpath("/" + str(mount.get("mountPath")).lstrip("/"))
            if volume.temporary:
                self.unsaved.watch(str(source / subpath), target, volume.missing_host_path)
            mounts.append(Mount(str(source), target, readonly, volume.pod_owned, subpath, create=not volume.readonly))
        return mounts


def _with_working_directory(prepared: PreparedImage, folder: str, print_once: Callable[[str], object]) -> PreparedImage:
    """The image, with the working directory of the pod's annotation (`folder`) where the image has none of its own."""
    if prepared.workdir != WORKING_DIRECTORY:
        return prepared
    if folder and not os.path.isdir(folder):
        print_once(
            f"node: there is no folder {folder} on this machine, which the annotation {labels.WORKING_DIRECTORY} "
            "names; programs start in /"
        )
        folder = ""
    return replace(prepared, workdir=folder)


def _ssh_server_refusal(argv: list[str]) -> str:
    """Why sshd does not start on the shared network as a worker of an MPIJob starts it, "" for any other program: with
    the settings of this machine it would let people into this machine."""
    if not argv or os.path.basename(argv[0]) != "sshd" or any(word in ("-f", "-p", "-o") for word in argv):
        return ""
    return "sshd would listen on port 22 of this machine, which all pods share; start with --network namespace"


def _resolve_subpath(folder: Path, path: str, make: bool) -> Path:
    """The real path of `path` beneath the folder of a volume, with symbolic links followed. Raises StartError."""
    try:
        fd = safe_paths.resolve(str(folder), path, make)
    except OSError as error:
        raise StartError(128, "StartError", f"subPath {path!r}: {error.strerror}") from None
    try:
        return Path(os.readlink(f"/proc/self/fd/{fd}"))
    finally:
        os.close(fd)
