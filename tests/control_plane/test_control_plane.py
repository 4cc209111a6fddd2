"""The control plane for tests: it is real, it is what the flags say, and nothing of it is left however it ends."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import control_plane as control_plane_module
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_audit import counted, of
from tests.support.control_plane_build import KUBERNETES
from tests.support.control_plane_fixtures import install
from tests.support.control_plane_flags import Options
from tests.support.control_plane_process import free_ports
from tests.support.samples import sample
from tests.support.waiting import SLOW_PAUSE, until
from trainyard import kinds
from trainyard.client import ApiClient, Forbidden, Gone, Unavailable
from trainyard.objects import Json
from trainyard.objects.resources import CONFIG_MAP, POD

pytestmark = pytest.mark.cluster


def pod(name: str, **spec: object) -> Json:
    containers = [{"name": "main", "image": "example/train:1"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers, **spec}}


# --- up


def test_the_control_plane_and_kubectl_have_the_pinned_version(control_plane: ControlPlane) -> None:
    document = json.loads(control_plane.kubectl("version", "-o", "json"))
    assert document["clientVersion"]["gitVersion"] == document["serverVersion"]["gitVersion"] == f"v{KUBERNETES}"


def test_a_second_up_starts_nothing(control_plane: ControlPlane) -> None:
    before = [(process.name, process.pid) for process in control_plane.processes]
    assert control_plane.up() is control_plane
    assert [(process.name, process.pid) for process in control_plane.processes] == before


def test_up_restarts_processes_that_have_died(control_plane: ControlPlane) -> None:
    control_plane.stop("kube-scheduler")
    before = {process.name: process.pid for process in control_plane.processes}
    after = {process.name: process.pid for process in control_plane.up().processes}
    assert [name for name in before if before[name] != after[name]] == ["kube-scheduler"]


def test_helm_of_the_same_build_reaches_the_api_server(control_plane: ControlPlane) -> None:
    completed = control_plane.run("helm", "list", "-o", "json")
    assert (completed.returncode, json.loads(completed.stdout), completed.stderr) == (0, [], "")


@pytest.mark.parametrize("user", ["admin", "alice", "bob", "carol"])
def test_each_context_is_the_identity_of_its_name(control_plane: ControlPlane, user: str) -> None:
    user_info = json.loads(control_plane.kubectl("auth", "whoami", "-o", "json", user=user))["status"]["userInfo"]
    assert user_info["username"] == user
    assert ("system:masters" in user_info["groups"]) == (user == "admin")
    assert ("researchers" in user_info["groups"]) == (user == "carol")


@pytest.mark.parametrize("user", ["alice", "bob", "carol"])
async def test_all_users_but_the_administrator_have_no_permissions(control_plane: ControlPlane, user: str) -> None:
    async with control_plane.api(user) as api:
        with pytest.raises(Forbidden, match=f'User "{user}" cannot list resource "pods"'):
            await api.list(POD, "default")


async def test_a_token_of_a_service_account_is_that_account(control_plane: ControlPlane, namespace: str) -> None:
    control_plane.kubectl("create", "serviceaccount", "operator", "-n", namespace)
    token = control_plane.kubectl("create", "token", "operator", "-n", namespace).strip()
    async with control_plane.api(token=token) as api:
        with pytest.raises(Forbidden, match=f"system:serviceaccount:{namespace}:operator"):
            await api.list(POD, namespace)


def test_private_files_are_for_this_user_alone(control_plane: ControlPlane) -> None:
    assert control_plane.folder.stat().st_mode & 0o777 == 0o700
    for path in [*(control_plane.folder / "pki").iterdir(), *control_plane.folder.glob("*.kubeconfig")]:
        if path.suffix in (".key", ".csv", ".kubeconfig"):
            assert path.stat().st_mode & 0o777 == 0o600, path


# --- the controllers


def test_the_controllers_and_the_scheduler_work(control_plane: ControlPlane, namespace: str) -> None:
    control_plane.add_node("kwok-1")
    control_plane.kubectl("create", "deployment", "web", "--image=example/web:1", "--replicas=2", "-n", namespace)
    control_plane.kubectl("rollout", "status", "deployment/web", "-n", namespace, "--timeout=60s")
    pods = json.loads(control_plane.kubectl("get", "pods", "-o", "json", "-n", namespace))["items"]
    assert [(pod["spec"]["nodeName"], pod["status"]["phase"]) for pod in pods] == [("kwok-1", "Running")] * 2


# --- faults


async def test_etcds_state_survives_a_restart_and_old_watches_are_expired(
    control_plane: ControlPlane, namespace: str
) -> None:
    async with control_plane.api() as api:
        config_map = await api.create(CONFIG_MAP, namespace, {"metadata": {"name": "kept"}})
        for name in ("etcd", "kube-apiserver"):
            control_plane.restart(name)
        assert (await api.get(CONFIG_MAP, namespace, "kept"))["metadata"]["uid"] == config_map["metadata"]["uid"]
        with pytest.raises(Gone):
            await old_watch(control_plane, namespace)


async def old_watch(plane: ControlPlane, namespace: str) -> None:
    """The new watch cache begins at the present: an older revision is 410, as a response or as an event."""
    async with plane.api() as api:
        async for line in api.watch(CONFIG_MAP, namespace, "1"):
            event = json.loads(line)
            assert event["type"] == "ERROR", event
            raise Gone(event["object"]["code"], event["object"]["reason"], event["object"]["message"])


async def test_a_paused_api_server_answers_once_it_is_continued(control_plane: ControlPlane) -> None:
    async with control_plane.api() as api:
        await api.list(CONFIG_MAP, "default")
        control_plane.pause()
        listing = asyncio.create_task(api.list(CONFIG_MAP, "default"))
        assert await asyncio.wait([listing], timeout=0.5) == (set(), {listing})
        control_plane.resume()
        assert (await listing)["kind"] == "ConfigMapList"


# --- the audit log


async def test_the_audit_log_counts_requests_by_user_verb_and_resource(
    control_plane: ControlPlane, namespace: str
) -> None:
    mark = control_plane.audit.mark()
    async with control_plane.api() as admin, control_plane.api("alice") as alice:
        for name in ("a", "b"):
            await admin.create(CONFIG_MAP, namespace, {"metadata": {"name": name}})
        with pytest.raises(Forbidden):
            await alice.list(POD, namespace)
        watch = admin.watch(CONFIG_MAP, namespace)
        await anext(watch)
        requests = [request for request in control_plane.audit.since(mark) if request.namespace == namespace]
        await watch.aclose()
    count = counted(requests)
    assert count["admin", "create", "configmaps"] == 2
    assert count["admin", "watch", "configmaps"] == 1
    (refused,) = of("alice", requests)
    assert (refused.verb, refused.resource, refused.code, refused.allowed) == ("list", "pods", 403, False)
    assert {request.right for request in of("admin", requests)} == {("configmaps", "create"), ("configmaps", "watch")}
    assert {request.agent.partition("/")[0] for request in requests if request.user == "alice"} == {"test-alice"}


@pytest.mark.slow
def test_a_port_taken_between_check_and_start_is_replaced_by_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        answers = [[*free_ports(2), other.getsockname()[1]], free_ports(3)]
        monkeypatch.setattr(control_plane_module, "free_ports", lambda count: answers.pop(0))
        with ControlPlane() as plane:
            assert plane.ask("GET", "/version")[0] == 200
    assert not answers


# --- otherwise than usual: one of its own for each


@pytest.mark.slow
async def test_too_many_concurrent_requests_get_429_with_retry_after() -> None:
    """One request is sent but for its end. While the server waits for that, there is no room for another."""
    async with ControlPlane(Options(inflight=1)) as plane, plane.api("alice") as api:
        plane.kubectl("create", "clusterrolebinding", "alice", "--clusterrole=cluster-admin", "--user=alice")
        secure = plane.identities.secure()
        _, half = await asyncio.open_connection("127.0.0.1", plane.places.api, ssl=secure)
        head = ["POST /api/v1/namespaces/default/configmaps HTTP/1.1", "Host: 127.0.0.1", "Content-Length: 1000"]
        head += [f"Authorization: Bearer {plane.token('alice')}", "Content-Type: application/json"]
        half.write("\r\n".join([*head, "", "{"]).encode())
        await half.drain()
        refused = await asyncio.wait_for(refusal(api), 30)
        half.close()
    assert (refused.code, refused.retry_after) == (429, 1.0)


async def refusal(api: ApiClient) -> Unavailable:
    for number in itertools.count():
        try:
            await api.create(CONFIG_MAP, "default", {"metadata": {"name": f"one-{number}"}})
        except Unavailable as error:
            return error
    raise AssertionError("not reached")


@pytest.mark.slow
def test_an_older_version_is_emulated_and_takes_the_same_definitions_and_jobs() -> None:
    with ControlPlane(Options(emulated="1.34")) as plane:
        assert plane.ask("GET", "/version")[1]["emulationMinor"] == "34"
        assert "Warning" not in install(plane)
        for kind in kinds.ALL:
            wire = {**sample(kind.gvk.kind), "apiVersion": kind.gvk.api_version, "metadata": {"name": "job"}}
            path = f"/apis/{kind.gvk.api_version}/namespaces/default/{kind.gvk.plural}"
            code, answer = plane.ask("POST", path, wire)
            assert code == 201, answer


@pytest.mark.slow
def test_a_node_that_is_lost_becomes_unknown_and_its_pods_are_evicted() -> None:
    unreachable = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
    toleration = {**unreachable, "tolerationSeconds": 1}
    with ControlPlane(Options(node_loss=True)) as plane:
        for name in ("lost", "well"):
            plane.add_node(name)
        for name in ("lost", "well"):
            wire = pod(name, nodeSelector={"kubernetes.io/hostname": name}, tolerations=[toleration])
            plane.kubectl("create", "-f", "-", stdin=json.dumps(wire))
            plane.kubectl("wait", f"pod/{name}", "--for=condition=Ready", "--timeout=60s")
        plane.lose_node("lost")
        plane.kubectl("wait", "node/lost", "--for=condition=Ready=Unknown", "--timeout=60s")
        plane.kubectl("wait", "pod/lost", "--for=condition=DisruptionTarget", "--timeout=60s")
        obj = plane.ask("GET", "/api/v1/namespaces/default/pods/well")[1]
        assert "deletionTimestamp" not in obj["metadata"]


# --- the end


class Started:
    """The command in a process of its own, whose folders are below `place`."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.child = subprocess.Popen(
            [sys.executable, "-m", "tests.support.control_plane"],
            env={**os.environ, "TMPDIR": str(place)},
            stdout=subprocess.PIPE,
            text=True,
        )

    def below(self) -> dict[int, str]:
        """Our processes that name the place, and when each began: a number may come again."""
        processes = {}
        for path in Path("/proc").glob("[0-9]*"):
            try:
                command_line = (path / "cmdline").read_bytes().decode(errors="replace")
                state, *rest = (path / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if str(self.place) in command_line and state != "Z":
                processes[int(path.name)] = rest[18]
        return processes

    def names(self) -> set[str]:
        left = set()
        for pid in self.below():
            with contextlib.suppress(OSError):  # it may have ended
                left.add(Path(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()).name)
        return left


@pytest.fixture
def started(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Started]:
    """Built by now. A short path: sockets take no long one."""
    started = Started(tmp_path)
    yield started
    started.child.kill()
    started.child.wait()


ENDS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@pytest.mark.slow
@pytest.mark.parametrize("number", ENDS, ids=lambda number: number.name)
def test_nothing_is_left_after_any_kind_of_end(started: Started, number: signal.Signals) -> None:
    assert started.child.stdout is not None
    config = started.child.stdout.readline().partition("KUBECONFIG=")[2].split()[0]
    assert Path(config).is_file() and {"etcd", "kube-apiserver", "kube-scheduler"} <= started.names()
    started.child.send_signal(number)
    started.child.wait()
    until(
        lambda: not started.below() and not list(started.place.iterdir()),
        "nothing is left",
        seconds=30,
        pause=SLOW_PAUSE,
    )


@pytest.mark.slow
def test_nothing_is_left_of_a_control_plane_killed_during_its_start(started: Started) -> None:
    until(started.names, "the API server is started", accept=lambda names: "kube-apiserver" in names, pause=SLOW_PAUSE)
    started.child.kill()
    started.child.wait()
    until(
        lambda: not started.below() and not list(started.place.iterdir()),
        "nothing is left",
        seconds=30,
        pause=SLOW_PAUSE,
    )


@pytest.mark.slow
def test_leftovers_of_the_reaper_are_removed_by_the_next_start(started: Started) -> None:
    assert started.child.stdout is not None
    started.child.stdout.readline()
    (left,) = started.place.iterdir()
    started.child.send_signal(signal.SIGSTOP)  # it holds the lock, so the reaper still waits when it is killed
    for pid in started.below():
        os.kill(pid, signal.SIGKILL)
    started.child.kill()
    started.child.wait()
    until(started.below, "no process is left", accept=lambda left: not left, pause=SLOW_PAUSE)
    assert left.is_dir()
    with ControlPlane(parent=started.place) as plane:
        assert list(started.place.iterdir()) == [plane.folder]
    assert not list(started.place.iterdir())
