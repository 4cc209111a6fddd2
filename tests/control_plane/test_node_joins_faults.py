"""`trainyard node` when things break: the API server is away, the node is killed, stopped, held up, or another comes.

The control plane is one of its own: it taints new nodes and loses silent ones, and it judges kubelets by an authority.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.control_plane.joined_commands import PATIENCE, POLITE, Joined, condition_message, exists, joined
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_fixtures import create_namespace
from tests.support.control_plane_flags import Options
from tests.support.waiting import until_async
from trainyard.app.kubeconfig import read_kubeconfig
from trainyard.objects.resources import LEASE, NODE, POD
from trainyard.server.auth.certificates import CertificateAuthority, write_private_file

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """What nodes show this API server, which takes nothing else."""
    folder = tmp_path_factory.mktemp("kubelets")
    authority = CertificateAuthority.new(time.time())
    write_private_file(folder / "ca.crt", authority.pem.encode())
    authority.server_certificate("kubelet").write(folder / "kubelet")
    return folder / "kubelet.crt", folder / "kubelet.key"


@pytest.fixture(scope="module")
def plane(shown: tuple[Path, Path]) -> Iterator[ControlPlane]:
    more = {"kube-apiserver": [f"--kubelet-certificate-authority={shown[0].with_name('ca.crt')}"]}
    with ControlPlane(Options(node_loss=True, more=more)) as plane:
        create_namespace(plane, "faults")
        yield plane


class Program:
    """`trainyard node` as a process, and everything that can be seen of it from outside."""

    def __init__(self, plane: ControlPlane, name: str, folder: Path, network: str, shown: tuple[Path, Path]) -> None:
        arguments = ["--kubeconfig", str(plane.kubeconfig), "--name", name, "--network", network]
        arguments += ["--tls-cert-file", str(shown[0]), "--tls-private-key-file", str(shown[1])]
        self.folder, self._command = folder, [sys.executable, "-m", "trainyard", "node", *arguments]
        self._child: asyncio.subprocess.Process | None = None
        self.log_lines: list[str] = []

    @property
    def child(self) -> asyncio.subprocess.Process:
        assert self._child is not None
        return self._child

    async def start(self) -> None:
        env = {**os.environ, "TMPDIR": str(self.folder)}
        self._child = await asyncio.create_subprocess_exec(*self._command, env=env, stderr=asyncio.subprocess.PIPE)
        assert self._child.stderr is not None
        async with asyncio.timeout(PATIENCE):
            while line := (await self._child.stderr.readline()).decode():
                self.log_lines.append(line)
                if "is ready" in line:
                    return
        raise AssertionError(f"it ended with {await self._child.wait()}: {self.log_lines}")

    async def end(self, number: signal.Signals) -> int:
        self.child.send_signal(number)
        async with asyncio.timeout(PATIENCE):
            return await self.child.wait()

    async def nothing_left(self) -> None:
        """Until no process, mount or file of it is there."""
        await until_async(lambda: not self.left(), f"nothing of {self.folder} is left")

    def left(self) -> bool:
        return bool(self.processes()) or str(self.folder) in Path("/proc/mounts").read_text()

    def files(self) -> list[str]:
        return os.listdir(self.folder)

    def processes(self) -> list[str]:
        """Those with the folder in their command line: the supervisor, and what pods run."""
        pids = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if str(self.folder) in line and int(path.parent.name) != os.getpid():
                    pids.append(line)
        return pids


@asynccontextmanager
async def program(
    plane: ControlPlane, name: str, folder: Path, network: str, shown: tuple[Path, Path]
) -> AsyncIterator[tuple[Program, Joined]]:
    program_ = Program(plane, name, folder, network, shown)
    async with plane.api() as api:
        try:
            await program_.start()
            yield program_, Joined(plane, api, "faults", name)
        finally:
            if program_.child.returncode is None:
                program_.child.kill()
                await program_.child.wait()
            with contextlib.suppress(Exception):
                await api.delete(NODE, "", name)


@pytest.fixture(params=["namespace", "shared"])
def network(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_a_signal_ends_the_node_and_leaves_nothing(
    plane: ControlPlane, tmp_path: Path, network: str, shown: tuple[Path, Path]
) -> None:
    async with program(plane, f"stopped-{network}", tmp_path, network, shown) as (agent, there):
        await there.pod(f"polite-{network}", f": {tmp_path}; {POLITE}")
        await there.up(f"polite-{network}")  # so the taint of a new node has been taken away, its certificate is good
        assert len(agent.processes()) >= 2
        assert await agent.end(signal.SIGTERM) == 0
        await agent.nothing_left()
        assert agent.files() == []
        pod = await there.api.get(POD, "faults", f"polite-{network}")
        assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "Terminated")
        assert not await exists(there.api, f"stopped-{network}")


async def test_a_second_signal_does_not_wait_for_pods(
    plane: ControlPlane, tmp_path: Path, shown: tuple[Path, Path]
) -> None:
    async with program(plane, "hasty", tmp_path, "shared", shown) as (agent, there):
        stubborn = f": {tmp_path}; trap 'echo no' TERM; echo up; while :; do sleep 0.05; done"
        await there.pod("stubborn", stubborn, terminationGracePeriodSeconds=600)
        await there.up("stubborn")
        agent.child.send_signal(signal.SIGTERM)
        await there.until("hasty", lambda node: node["spec"].get("unschedulable"), NODE)
        assert await agent.end(signal.SIGTERM) == 0
        await agent.nothing_left()
        assert (await there.api.get(POD, "faults", "stubborn"))["status"]["phase"] == "Failed"
        assert not await exists(there.api, "hasty")


async def test_a_killed_node_leaves_nothing_and_its_successor_continues_its_pods(
    plane: ControlPlane, tmp_path: Path, network: str, shown: tuple[Path, Path]
) -> None:
    name = f"killed-{network}"
    once, always, deleted = (f"{name}-{network}" for name in ("once", "always", "deleted"))
    async with program(plane, name, tmp_path, network, shown) as (agent, there):
        for pod, policy in ((once, "Never"), (always, "Always"), (deleted, "Never")):
            await there.pod(pod, f": {tmp_path}; {POLITE}", restartPolicy=policy)
        for pod in (once, always, deleted):
            await there.ready(pod)
        await agent.end(signal.SIGKILL)
        await agent.nothing_left()
        await there.until(
            name, lambda node: condition_message(node, "Ready") == "Unknown", NODE
        )  # the controllers have noticed
        await there.kubectl("delete", "pod", deleted, "--wait=false", "--grace-period=5")
        await agent.start()  # the lease is its own former life's, which is dead: nobody waits for it
        assert any("was killed" in line for line in agent.log_lines)
        await there.gone(deleted)
        lost = await there.phase(once, "Failed")
        ended = lost["status"]["containerStatuses"][0]
        assert ended["state"]["terminated"]["reason"] == "ContainerStatusUnknown" and ended["restartCount"] == 0
        again = await there.ready(always)
        again = await there.until(always, lambda pod: pod["status"]["containerStatuses"][0]["restartCount"] == 1)
        assert again["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 137
        await there.until(name, lambda node: condition_message(node, "Ready") == "True", NODE)
        await there.pod(f"next-{network}", "echo here")
        assert await there.result(f"next-{network}") == "here\n"
        assert await agent.end(signal.SIGTERM) == 0
        await agent.nothing_left()


@pytest.mark.parametrize("fault", ["restarted", "paused"])
async def test_pods_continue_during_an_outage_of_the_api_server_and_their_ends_are_written_later(
    plane: ControlPlane, tmp_path: Path, shown: tuple[Path, Path], fault: str
) -> None:
    async with joined(plane, "faults", serving_certificate=shown) as here:
        for name in ("ends", "stays"):
            script = f"echo up; until [ -e {tmp_path}/{name} ]; do sleep 0.02; done; touch {tmp_path}/{name}-seen"
            await here.pod(f"{name}-{fault}", script)
            await here.ready(f"{name}-{fault}")
        await asyncio.to_thread(plane.stop if fault == "restarted" else plane.pause)
        (tmp_path / "ends").touch()
        await until_async((tmp_path / "ends-seen").exists, "the first pod has seen that it ends")
        (plane.start if fault == "restarted" else plane.resume)()  # here: what a thread of a pool starts dies with it
        done = await here.phase(f"ends-{fault}", "Succeeded")
        assert done["status"]["containerStatuses"][0]["restartCount"] == 0
        stays = await here.api.get(POD, "faults", f"stays-{fault}")
        assert stays["status"]["phase"] == "Running" and stays["status"]["containerStatuses"][0]["restartCount"] == 0
        (tmp_path / "stays").touch()
        await here.phase(f"stays-{fault}", "Succeeded")


async def test_a_killed_task_of_the_node_is_logged_and_restarted(plane: ControlPlane, shown: tuple[Path, Path]) -> None:
    async with joined(plane, "faults", serving_certificate=shown) as here:
        assert here.node is not None
        assert here.node._node is not None
        owners = (here.node.tasks, here.node._node.tasks)
        killed = set()
        for tasks in owners:
            for name in tasks.names:
                if (task := tasks.task(name)) is not None:
                    task.cancel()
                    killed.add(name)
        watches = {"watch pods", "watch services", "watch its Node"}
        assert killed == {"renew the lease", "heartbeat", "sample usage", *watches}
        await here.pod("later", "echo fine")
        assert await here.result("later") == "fine\n"
        await until_async(lambda: not any(tasks.failing for tasks in owners), "every task runs")
        await here.until(here.name, lambda node: condition_message(node, "Ready") == "True", NODE)
        assert all(any(f"the task {name!r} was cancelled" in line for line in here.messages) for name in killed), (
            here.messages
        )


async def test_revoked_permissions_are_waited_for(
    plane: ControlPlane, tmp_path: Path, shown: tuple[Path, Path]
) -> None:
    grant = ("create", "clusterrolebinding", "bobs", "--clusterrole=cluster-admin", "--user=bob")
    await asyncio.to_thread(plane.kubectl, *grant)
    access = read_kubeconfig([plane.kubeconfig], "bob")
    async with joined(plane, "faults", serving_certificate=shown, access=access) as here:
        await here.pod("refused", f"echo up; until [ -e {tmp_path}/go ]; do sleep 0.02; done")
        await here.ready("refused")
        await here.kubectl("delete", "clusterrolebinding", "bobs")
        (tmp_path / "go").touch()
        await until_async(
            lambda: any('cannot patch resource "pods/status"' in line for line in here.messages),
            "a status is refused",
            context=lambda: here.messages,
        )
        await here.kubectl(*grant)
        await here.phase("refused", "Succeeded")
        assert len([line for line in here.messages if "pods/status" in line]) == 1


async def test_a_stop_does_not_wait_for_an_api_server_that_is_away(
    plane: ControlPlane, tmp_path: Path, shown: tuple[Path, Path]
) -> None:
    async with program(plane, "alone", tmp_path, "shared", shown) as (agent, there):
        mark = tmp_path.with_name("alone-seen")
        await there.pod("alone", f": {tmp_path}; trap 'touch {mark}; exit 7' TERM; while :; do sleep 0.05; done")
        await there.ready("alone")
        await asyncio.to_thread(plane.stop)
        try:
            assert await agent.end(signal.SIGTERM) == 0
            await agent.nothing_left()
            assert mark.exists()  # it had its grace
        finally:
            plane.start()
        node = await there.until("alone", lambda node: condition_message(node, "Ready") == "Unknown", NODE)
        assert "unschedulable" not in node["spec"]
        await there.kubectl("delete", "pod", "alone", "--force", "--grace-period=0")


async def test_a_node_whose_name_was_taken_stops_its_pods_and_writes_nothing(
    plane: ControlPlane, tmp_path: Path, shown: tuple[Path, Path]
) -> None:
    async with joined(plane, "faults", serving_certificate=shown) as here:
        assert here.node is not None
        await here.pod("twice", f"echo up; trap 'touch {tmp_path}/gone; exit 1' TERM; while :; do sleep 0.05; done")
        pod = await here.ready("twice")
        await here.api.patch(LEASE, "kube-node-lease", here.name, {"spec": {"holderIdentity": "another"}})
        async with asyncio.timeout(PATIENCE):
            await here.node.lease_taken.wait()
        await here.node.stop()
        assert await exists(here.api, here.name)
        after = await here.api.get(POD, "faults", "twice")
        assert after["status"]["phase"] == pod["status"]["phase"] == "Running"  # that is the other's to say
        lease = await here.api.get(LEASE, "kube-node-lease", here.name)
        assert lease["spec"]["holderIdentity"] == "another"
        await here.kubectl("delete", "pod", "twice", "--force", "--grace-period=0")
        await here.api.delete(NODE, "", here.name)


async def test_a_missing_namespace_of_leases_is_made(plane: ControlPlane, shown: tuple[Path, Path]) -> None:
    await asyncio.to_thread(plane.kubectl, "delete", "namespace", "kube-node-lease", "--wait=true")
    async with joined(plane, "faults", serving_certificate=shown) as here:
        await here.pod("without", "echo here")
        assert await here.result("without") == "here\n"


def test_an_unreachable_cluster_is_reported_and_blocks_nothing(tmp_path: Path) -> None:
    text = 'current-context: c\ncontexts: [{name: c, context: {cluster: c}}]\nclusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]'
    (tmp_path / "k").write_text(text)
    command = [sys.executable, "-m", "trainyard", "node", "--kubeconfig", str(tmp_path / "k")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 3 and "cannot join: GET /apis/coordination.k8s.io" in ended.stderr
