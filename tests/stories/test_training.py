"""Real TensorFlow, on the environment that the shipped catalogue names. It is built where `trainyard run` builds it.

Nothing is skipped here: where the environment cannot be had, these stories fail.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.stories.harness import DEPLOYMENT, POD, SERVICE, Harness
from tests.stories.runs import EXAMPLES, LONGEST, CommandOutput, Run, process_of, run_to_end, succeeded
from tests.support.matrix import trains
from trainyard.app.local import LocalClusterOptions
from trainyard.objects import Json, is_condition_true, labels_of, name_of, uid_of

pytestmark = [pytest.mark.frameworks, pytest.mark.slow]


def changed(folder: Path, example: str, change: Callable[[Json], None]) -> str:
    """An example with something changed, as a file."""
    (job,) = yaml.safe_load_all((EXAMPLES / example).read_text())
    change(job)
    path = folder / example
    path.write_text(yaml.safe_dump(job))
    return str(path)


def arguments(**by_role: list[str]) -> Callable[[Json], None]:
    """Other arguments for the roles that are named."""

    def change(job: Json) -> None:
        for replica_spec in job["spec"]["replicaSpecs"]:
            if replica_spec["tfReplicaType"] in by_role:
                replica_spec["template"]["spec"]["containers"][0]["args"] = by_role[replica_spec["tfReplicaType"]]

    return change


def accuracy(lines: list[str]) -> float:
    """What the master measured at the end, on pictures that nobody trained on."""
    (accuracy,) = [
        float(match[1]) for line in lines if (match := re.search(r"held-out accuracy ([0-9.]+), loss", line))
    ]
    return accuracy


@trains("tensorflow", "TfJob", network="namespace")
def test_a_distributed_training_succeeds_and_has_learnt() -> None:
    run = run_to_end(str(EXAMPLES / "tf_job_dist_train.yaml"), "--network", "namespace")
    job = succeeded(run)
    assert_all_learned(run)
    assert not job["status"]["restarts"]


def assert_all_learned(run: CommandOutput) -> None:
    assert accuracy(run.of("master-0")) >= 0.9
    losses = {}
    for replica in ("master-0", "worker-0", "worker-1"):
        steps = [re.search(r"step +\d+ +loss ([0-9.]+) .*own step \d+", line) for line in run.of(replica)]
        losses[replica] = [float(step[1]) for step in steps if step]
    assert all(role_losses and role_losses[-1] < 0.5 for role_losses in losses.values()), losses
    assert max(role_losses[0] for role_losses in losses.values()) > 1.5, (
        losses
    )  # whoever came first saw it know nothing


def test_every_task_of_the_readmes_job_answers() -> None:
    run = run_to_end(str(EXAMPLES / "tf_job.yaml"), "--network", "namespace")
    job = succeeded(run)
    identity = job["spec"]["RuntimeId"]
    for host in (f"master-{identity}-0", f"worker-{identity}-0", f"ps-{identity}-0", f"ps-{identity}-1"):
        assert any(host in line for line in run.of("master-0")), run.text
    assert any(re.search(r"all 4 tasks answered from 4 servers", line) for line in run.of("master-0")), run.text


@trains("tensorflow", "TfJob", network="shared")
def test_a_worker_killed_during_training_restarts_and_continues(tmp_path: Path) -> None:
    program_arguments = ["--steps=3000", "--delay=0.02"]
    example = changed(tmp_path, "tf_job_dist_train.yaml", arguments(MASTER=program_arguments, WORKER=program_arguments))
    run = Run(example, "--network", "shared")
    run.read_until(r"worker-0 +\| .*\(own step \d+\)")
    os.kill(process_of(r"worker-\w+-0", "tf_train.py", "--steps=3000"), signal.SIGKILL)
    run.end()
    job = succeeded(run)
    assert job["status"]["restarts"] == 1
    assert accuracy(run.of("master-0")) >= 0.9
    begins = [at for at, line in enumerate(run.of("worker-0")) if "training begins" in line]
    assert len(begins) == 2
    assert any("own step" in line for line in run.of("worker-0")[begins[1] :]), run.text
    assert sum("training begins" in line for line in [*run.of("worker-1"), *run.of("master-0")]) == 2


class TestInOneProcess:
    @pytest.fixture
    def options(self, place: Path) -> LocalClusterOptions:
        """The shipped catalogue, and the cache that `trainyard run` uses."""
        return LocalClusterOptions(network="namespace", say=print, parent=place)

    async def test_operator_restarts_do_not_disturb_training_and_tensorboard_shows_it(self, harness: Harness) -> None:
        harness.patience = LONGEST
        await harness.submit(with_tensorboard(harness.folder))
        visitor = await harness.visitor()
        before: dict[str, Any] = {}
        for _ in range(3):
            await harness.until(lambda job: job.get("status", {}).get("state") == "Running")
            await says(harness, "master", "own step")
            await harness.cluster.stop_operator()
            await says(harness, "worker", "own step")
            await harness.operator()
            now = {name_of(pod): uid_of(pod) for pod in (await harness.children(POD)).values()}
            assert before.items() <= now.items()
            before = now

        board = f"tensorboard-{(await harness.job())['spec']['RuntimeId']}"
        service = await harness.until(lambda obj: True, SERVICE, board)
        await harness.until(
            lambda deployment: is_condition_true(deployment.get("status", {}).get("conditions"), "Available"),
            DEPLOYMENT,
            board,
        )
        address = f"http://{service['spec']['clusterIP']}"
        runs = await visitor.ask(f"fetch('{address}/data/runs', '\".\"', 100)", 120)
        assert json.loads(runs) == ["."]
        tags = await visitor.ask(f"fetch('{address}/data/plugin/scalars/tags', 'accuracy', 100)", 120)
        assert set(json.loads(tags)["."]) >= {"loss", "accuracy"}
        assert list((harness.folder / "logs").glob("events.out.tfevents.*"))

        await harness.condition("Succeeded")
        job = await harness.job()
        assert not job["status"]["restarts"]
        pods = [pod for pod in (await harness.children(POD)).values() if "trainyard.dev/role" in labels_of(pod)]
        assert {name_of(pod): uid_of(pod) for pod in pods}.items() <= before.items()
        assert {status["restartCount"] for pod in pods for status in pod["status"]["containerStatuses"]} == {0}
        (master,) = [pod for pod in pods if name_of(pod).startswith("master-")]
        assert accuracy((await harness.logs(name_of(master))).splitlines()) >= 0.9


def with_tensorboard(folder: Path) -> Json:
    (job,) = yaml.safe_load_all((EXAMPLES / "tf_job_dist_train.yaml").read_text())
    program_arguments = ["--steps=3500", "--delay=0.01"]
    arguments(MASTER=[*program_arguments, "--log_dir=/logs"], WORKER=program_arguments)(job)
    job["metadata"]["name"] = "story"
    logs = folder / "logs"
    logs.mkdir()
    volumes = [{"name": "logs", "hostPath": {"path": str(logs)}}]
    mounts = [{"name": "logs", "mountPath": "/logs"}]
    (master,) = [
        replica_spec for replica_spec in job["spec"]["replicaSpecs"] if replica_spec["tfReplicaType"] == "MASTER"
    ]
    master["template"]["spec"]["volumes"] = volumes
    master["template"]["spec"]["containers"][0]["volumeMounts"] = mounts
    job["spec"]["tensorboard"] = {"logDir": "/logs", "volumes": volumes, "volumeMounts": mounts}
    holder: Json = job
    return holder


async def says(harness: Harness, role: str, text: str) -> None:
    """Until a replica prints that, from now on."""
    pod = name_of(await harness.pod(role))
    await harness.until(lambda pod: pod["status"].get("phase") == "Running", POD, pod)
    async with asyncio.timeout(harness.patience):
        async for chunk in harness.api.logs(harness.namespace, pod, "tensorflow", follow=True, tail_lines=0):
            if text.encode() in chunk:
                return
    raise AssertionError(f"{pod} has ended and did not say {text!r}: {await harness.logs(pod)}")
