"""Long-lived tasks: the supervisor reports and restarts each that ends."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from tests.controller_runtime.fake_clock import run
from tests.support.builders import tfjob
from tests.support.waiting import until_async
from tests.support.watched_objects import until_object
from trainyard.app.history.record_index import HistoryOptions
from trainyard.app.kubeconfig import ClusterAccess
from trainyard.app.local import NOT_SERVED, LocalCluster, LocalClusterOptions
from trainyard.app.operating import OperatorOptions as OperatorOptions
from trainyard.app.operating import OperatorProcess
from trainyard.cli.output.screen import Descriptors, Screen
from trainyard.cli.session.session import Session
from trainyard.cli.session.submission import Submission
from trainyard.client import ApiClient
from trainyard.controller_runtime import TaskSupervisor, WatchTarget
from trainyard.controller_runtime.lease import LeaseIdentity
from trainyard.controller_runtime.tasks import HEALTHY_SECONDS, MAX_RESTART_DELAY
from trainyard.core import Config
from trainyard.kinds import ALL, TFJOB
from trainyard.kinds.native_gang import NATIVE
from trainyard.objects import is_condition_true
from trainyard.objects.resources import EVENT, LEASE, NODE, POD
from trainyard.server import Server

ROOMS = Path(__file__).parents[2] / "src" / "trainyard"


async def _fail() -> None:
    raise ValueError("no such thing")


async def _return() -> None:
    return


async def _cancel() -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("death", "message"),
    [(_fail, "failed: ValueError: no such thing"), (_return, "returned"), (_cancel, "was cancelled")],
    ids=["raises", "returns", "is cancelled"],
)
def test_a_task_that_ends_is_logged_and_restarted_with_back_off(death: Callable[[], object], message: str) -> None:
    messages: list[str] = []
    starts: list[float] = []

    async def work() -> None:
        starts.append(asyncio.get_running_loop().time())
        await death()

    async def run_for_some_time() -> None:
        tasks = TaskSupervisor("node", messages.append)
        tasks.start("watch pods", work)
        await asyncio.sleep(0.01)
        assert tasks.failing == f"node: the task 'watch pods' {message}" and not tasks.unhealthy
        await asyncio.sleep(600)
        assert tasks.unhealthy == tasks.failing
        await tasks.stop()
        assert not tasks.names
        count = len(starts)
        await asyncio.sleep(600)
        assert len(starts) == count

    run(run_for_some_time())
    assert messages[0].startswith(f"node: the task 'watch pods' {message}; restarting it in 0.")
    pauses = [after - before for before, after in pairwise(starts)]
    assert pauses[0] <= 0.25 and MAX_RESTART_DELAY / 2 <= pauses[-1] <= MAX_RESTART_DELAY and len(starts) < 60


def test_a_task_that_runs_again_for_long_is_healthy_and_its_next_pause_is_short() -> None:
    changes: list[str] = []

    async def run_for_some_time() -> None:
        deaths = asyncio.Queue[None]()
        tasks = TaskSupervisor("node", None, lambda: changes.append(tasks.failing))
        tasks.start("heartbeat", deaths.get)
        for _ in range(3):
            deaths.put_nowait(None)
            await asyncio.sleep(2)
        assert tasks.unhealthy
        await asyncio.sleep(HEALTHY_SECONDS)
        assert not tasks.failing and changes[-1] == ""
        deaths.put_nowait(None)
        await asyncio.sleep(0.01)
        assert tasks.failing and not tasks.unhealthy
        await asyncio.sleep(0.3)
        assert not tasks.failing
        await tasks.stop()

    run(run_for_some_time())


def test_a_failing_background_task_is_logged_and_ends_no_other() -> None:
    messages: list[str] = []

    async def run_for_some_time() -> None:
        tasks = TaskSupervisor("node", messages.append)
        tasks.start("heartbeat", asyncio.Event().wait)  # type: ignore[arg-type]
        tasks.spawn("update Services", _fail())
        await asyncio.sleep(0.01)
        assert tasks.task("heartbeat") is not None and not tasks.failing
        await tasks.stop()

    run(run_for_some_time())
    assert messages == ["node: the task 'update Services' failed: ValueError: no such thing"]


def test_the_config_file_of_the_operator_is_followed_again(tmp_path: Path) -> None:
    """While the file is not watched the operator is not ready."""
    file = tmp_path / "config.yaml"
    file.write_text("")

    async def run_for_some_time() -> None:
        access = ClusterAccess("http://127.0.0.1:9")
        operating = OperatorProcess(OperatorOptions(access, tuple(ALL), Config(), config_file=file))
        operating.start_following()
        await asyncio.sleep(0)
        assert _kill(operating.tasks) == {"follow the controller config"}
        await asyncio.sleep(0.01)
        assert "follow the controller config" in operating.tasks.failing
        await asyncio.sleep(1)
        assert not operating.tasks.failing
        await operating.tasks.stop()

    run(run_for_some_time())


async def test_a_killed_lease_renewal_is_restarted() -> None:
    server = Server()
    await server.start()
    stop = asyncio.Event()
    identity = LeaseIdentity("default", "trainyard-operator", "me")
    operating = OperatorProcess(
        OperatorOptions(ClusterAccess(server.url), tuple(ALL), Config(), lease=identity, bind=None)
    )
    running = asyncio.create_task(operating.run(stop))
    async with ApiClient(server.url) as api, asyncio.timeout(20):
        await until_async(lambda: is_leading(operating), "the operator leads")
        assert _kill(operating.tasks) == {"hold the lease"}
        before = (await api.get(LEASE, "default", identity.name))["spec"]["renewTime"]
        await until_object(
            api, LEASE, "default", identity.name, lambda lease: lease["spec"]["renewTime"] != before, "it is renewed"
        )
        assert is_leading(operating) and not operating.tasks.failing
        stop.set()
        await running
    await server.stop()


def is_leading(operating: OperatorProcess) -> bool:
    return "leading" in "".join(state for _, _, state in operating.checks())


# The long-lived tasks of `up` and `run`.

SERVED = Config(missing_resources=NOT_SERVED, gang_scheduler=NATIVE)
KINDS = {f"watch {WatchTarget(kind.gvk).name}" for kind in ALL}
CHILDREN = {f"watch {WatchTarget(gvk).name}" for kind in ALL for gvk in kind.roles.children_in(SERVED)}
TABLE = {
    "API server": {"send bookmarks and expire events"},
    "node": {"watch services", "watch pods", "sample usage"},
    "workloads": {"record events", *(f"worker {number}" for number in range(4))},
    "operator": {"record events", *(f"worker {number}" for number in range(64)), *KINDS, *CHILDREN},
    "history": {"write records", *KINDS, "watch pods", "watch events"},
}


def _kill(tasks: TaskSupervisor) -> set[str]:
    for name in tasks.names:
        task = tasks.task(name)
        assert task is not None, name
        task.cancel()
    return set(tasks.names)


@pytest.mark.slow
async def test_a_killed_task_of_a_cluster_is_logged_and_restarted(tmp_path: Path) -> None:
    messages: list[str] = []
    history = HistoryOptions(tmp_path / "history", "test")
    async with LocalCluster(LocalClusterOptions(network="shared", say=messages.append, history=history)) as cluster:
        owners = cluster.task_supervisors
        killed = {component: _kill(tasks) for component, tasks in owners.items()}
        await until_async(lambda: all(map(_all_run, owners.values())), "every task runs")
        await until_async(lambda: _node_is_ready(cluster), "the node is ready")
        for component, names in killed.items():
            for name in names:
                assert any(f"{component}: the task {name!r} was cancelled; restarting" in text for text in messages), (
                    component,
                    name,
                )
    served = {name for name in killed["workloads"] if name.startswith("watch ")}  # all resources found by discovery
    assert served >= KINDS
    assert killed == {**TABLE, "workloads": TABLE["workloads"] | served}


@pytest.mark.slow
async def test_a_killed_task_of_a_run_does_not_stop_the_output_of_its_job(tmp_path: Path) -> None:
    container = {
        "name": "tensorflow",
        "image": "example.invalid/x",
        "command": ["/bin/sh", "-c", WAITS.format(tmp_path)],
    }
    job = tfjob({"tfReplicaType": "MASTER", "template": {"spec": {"containers": [container]}}})
    job["metadata"] = {"name": "shown", "namespace": "default"}
    with (tmp_path / "output").open("wb") as output:
        screen = Screen(Descriptors(*[output.fileno()] * 3), False, False, lambda: None)
        async with (
            LocalCluster(LocalClusterOptions(network="shared", say=lambda text: None)) as cluster,
            asyncio.timeout(30),
        ):
            session = Session(cluster, Submission(jobs=[(TFJOB, job)]), screen)
            await session.submit()
            killed = _kill(session.tasks)
            await until_async(lambda: _all_run(session.tasks), "every task of the session runs")
            (tmp_path / "go").touch()
            await session.wait_until_ended()
            await session.watch.logs.finish(ended_pods_only=True)
            session.close()
            await session.tasks.stop()
        await screen.close()
    watches = {f"watch {WatchTarget(gvk).name}" for gvk in (TFJOB.gvk, POD, EVENT)}
    assert killed == {"show progress", "explain what blocks", *watches}
    text = (tmp_path / "output").read_text()
    assert "it has gone on" in text and all(f"run: the task {name!r} was cancelled" in text for name in killed), text


WAITS = "until [ -e {}/go ]; do sleep 0.05; done; echo it has gone on"


async def _node_is_ready(cluster: LocalCluster) -> bool:
    return is_condition_true((await cluster.api.get(NODE, "", "local"))["status"]["conditions"], "Ready")


def _all_run(tasks: TaskSupervisor) -> bool:
    return all((task := tasks.task(name)) is not None and not task.cancelling() for name in tasks.names)


# Files that start tasks without a supervisor: each task ends with the function or object that started it.
SHORT_LIVED = {
    "daemon.py": "waits beside the work of `serve`",
    "app/local.py": "certificates, awaited by `start`",
    "app/operating.py": "waits beside the work of `run`",
    "cli/output/follow.py": "one log of one container",
    "cli/command/signals.py": "waits beside a command",
    "cli/session/log_screen.py": "one log",
    "controller_runtime/tasks.py": "the supervisor itself",
    "controller_runtime/reflector.py": "one exchange, awaited by `run`",
    "node/kubelet/api/exec.py": "one exec session",
    "node/devices/sampler.py": "the samples of one kind of device, awaited by `run`",
    "node/images/environments.py": "progress of one build",
    "node/images/images.py": "the preparation for the first pod, cancelled by `close`",
    "node/images/providers.py": "one build, awaited by its pods",
    "node/kubelet/api/listener.py": "the start of what serves connections, awaited by its end",
    "node/kubelet/pod_worker.py": "one pod",
    "node/kubelet/container_runtime.py": "one start of a container",
    "node/kubelet/usage/stop_writes.py": "the files of containers that stop, until they have",
    "operator/plan_executor.py": "one status patch, awaited by its reconcile",
    "server/http/listeners.py": "one connection",
    "server/proxy/tunnel.py": "one tunnel",
    "page/forward.py": "the end of one forward, awaited when the page server stops",
    "page/http.py": "the frames of one open page",
    "page/job_pages.py": "one reading, awaited by open pages",
    "page/job_progress.py": "one reading, shared by open pages",
    "page/live.py": "one reading for one open page",
    "page/log_stream.py": "one log, as long as an open page shows it",
    "page/observation.py": "the end of the watches after the last page",
}


def test_no_other_file_starts_unsupervised_tasks() -> None:
    starting = set()
    for path in ROOMS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in ("create_task", "ensure_future"):
                starting.add(str(path.relative_to(ROOMS)))
    assert starting == set(SHORT_LIVED), "start long-lived tasks with TaskSupervisor.start"
