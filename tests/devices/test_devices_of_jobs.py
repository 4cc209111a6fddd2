"""`trainyard up` on a machine with four GPUs (tests/support/fake_nvml.py): gangs, and a daemon that is killed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.app.daemon_values import Home, at_home, kill
from tests.support.fake_nvml import FakeNvml, uuid
from tests.support.waiting import until
from trainyard.app.kubeconfig import find_cluster
from trainyard.client import ApiRequest
from trainyard.objects import Json, find_condition, name_of
from trainyard.objects.resources import EVENT, POD

pytestmark = pytest.mark.slow

GPU = "nvidia.com/gpu"


def manifest(folder: Path, name: str, workers: int) -> Path:
    """A job whose workers print their devices and run until the file `name` is there."""
    script = f"echo devices=$CUDA_VISIBLE_DEVICES; until [ -e {folder / name} ]; do sleep 0.1; done"
    container = {"name": "pytorch", "image": "x", "command": ["sh", "-c", script], "resources": {"limits": {GPU: 1}}}
    role = {"replicas": workers, "restartPolicy": "OnFailure", "template": {"spec": {"containers": [container]}}}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name}}
    job["spec"] = {"pytorchReplicaSpecs": {"Worker": role}}
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(job))
    return path


class Cluster:
    """What the API server of a daemon has."""

    def __init__(self, home: Home) -> None:
        self._kubeconfig = home.state / "kubeconfig"

    def list(self, gvk: object) -> list[Json]:
        async def ask() -> list[Json]:
            async with find_cluster(str(self._kubeconfig), "").api("test") as api:
                return list((await api.list(gvk, "default"))["items"])  # type: ignore[arg-type]

        return asyncio.run(ask())

    def text(self, path: str) -> str:
        async def ask() -> str:
            async with find_cluster(str(self._kubeconfig), "").api("test") as api:
                return (await api.send(ApiRequest("GET", path))).decode()

        return asyncio.run(ask())

    def pods(self, job: str) -> dict[str, Json]:
        return {name_of(pod): pod for pod in self.list(POD) if name_of(pod).startswith(f"{job}-")}

    def until_pods(self, job: str, count: int, true: Callable[[Json], bool], what: str) -> dict[str, Json]:
        """Wait until the job has that many pods, for each of which that holds."""

        def hold(pods: dict[str, Json]) -> bool:
            return len(pods) == count and all(map(true, pods.values()))

        return until(lambda: self.pods(job), f"{count} pods of {job} {what}", accept=hold, seconds=120)


def is_running(pod: Json) -> bool:
    return bool(pod["status"].get("phase") == "Running")


def waits_for_devices(pod: Json) -> bool:
    """Alone, or with its gang."""
    scheduled = find_condition(pod["status"].get("conditions") or [], "PodScheduled")
    message = str((scheduled or {}).get("message"))
    return "1 Insufficient nvidia.com/gpu." in message or "minCount (3) cannot be satisfied" in message


def restarted(pod: Json) -> bool:
    statuses = pod["status"].get("containerStatuses") or []
    return is_running(pod) and [status["restartCount"] for status in statuses] == [1]


def devices(home: Home, job: str, count: int) -> dict[str, list[str]]:
    """Replica -> the devices that its program has printed, once for each of its runs."""

    def read() -> dict[str, list[str]]:
        lines = [line.split() for line in home.say("logs", job)[1].splitlines() if "devices=" in line]
        by_replica: dict[str, list[str]] = {}
        for words in lines:
            by_replica.setdefault(words[0], []).append(words[-1].removeprefix("devices="))
        return by_replica

    return until(read, f"the logs of {job}", accept=lambda by_replica: len(by_replica) == count)


@contextlib.contextmanager
def cluster_with_gpus(tmp_path: Path, count: int) -> Iterator[tuple[FakeNvml, Home, Cluster]]:
    """A cluster by `up` on a machine with so many GPUs, all of which its shell allows."""
    machine = FakeNvml(tmp_path, count)
    with at_home(tmp_path) as home:
        home.env |= machine.environ
        for name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"):
            home.env.pop(name, None)
        assert home.up()[0] == 0
        yield machine, home, Cluster(home)


def test_two_jobs_of_three_run_one_after_the_other_and_a_killed_daemon_gives_no_device_twice(tmp_path: Path) -> None:
    with cluster_with_gpus(tmp_path, 4) as (_, home, cluster):
        assert home.say("submit", str(manifest(tmp_path, "first", 3)))[0] == 0
        cluster.until_pods("first", 3, is_running, "run")
        assert home.say("submit", str(manifest(tmp_path, "second", 3)))[0] == 0
        cluster.until_pods("second", 3, waits_for_devices, "wait")
        given = devices(home, "first", 3)
        assert sorted(uuids for (uuids,) in given.values()) == [uuid(0), uuid(1), uuid(2)]

        kill(home.pid)
        assert home.up()[0] == 0
        cluster.until_pods("first", 3, restarted, "run again")
        assert devices(home, "first", 3) == given
        cluster.until_pods("second", 3, waits_for_devices, "wait")

        (tmp_path / "first").touch()
        cluster.until_pods("second", 3, is_running, "run")  # once two of the first have ended
        of_second = {uuids for (uuids,) in devices(home, "second", 3).values()}
        assert len(of_second) == 3 and of_second < set(map(uuid, range(4)))
        events = [event for event in cluster.list(EVENT) if event["reason"] == "FailedScheduling"]
        assert {event["involvedObject"]["name"] for event in events} == {f"second-worker-{i}" for i in range(3)}
        (tmp_path / "second").touch()
