"""Kubeflow's training-operator is replaced by ours while jobs train, as docs/from-training-operator.md says.

Its Pods are processes on our node. Each appends the number of every step to a file of its own: a restart would begin
again at 0.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.control_plane.readme_node import joined
from tests.drop_in.operators import TrainingOperator, create
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_fixtures import create_namespace
from tests.support.waiting import SLOW_PAUSE, until
from trainyard.objects import Json, is_condition_true, name_of, uid_of
from trainyard.objects.labels import OWNER

pytestmark = [pytest.mark.cluster, pytest.mark.drop_in, pytest.mark.slow]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "from-training-operator.md"
IMAGES = Path(__file__).with_name("adoption_images") / "images.yaml"
NAMESPACE = "team"
PATIENCE = 120.0
TRAIN = """
import itertools, os, sys, time
folder = sys.argv[1]
with open(os.path.join(folder, os.environ["NAME"]), "a", buffering=1) as steps:
    for step in itertools.count():
        print(step, file=steps)
        if os.path.exists(os.path.join(folder, "end")):
            break
        time.sleep(0.05)
"""
JOBS = {
    "pytorchjobs": ("PyTorchJob", "pytorchReplicaSpecs", "pytorch", ("Master", "Worker")),
    "tfjobs": ("TFJob", "tfReplicaSpecs", "tensorflow", ("Chief", "Worker")),
}
"""Resource -> kind, the field with the replicas, the main container, the roles."""


class Cluster:
    """What a user sees of it."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane, self.folder = plane, folder

    def get(self, path: str) -> Json:
        code, answer = self.plane.ask("GET", path)
        assert code == 200, answer
        return answer

    def items(self, resource: str) -> dict[str, Json]:
        """The objects of a core resource by name."""
        return {name_of(item): item for item in self.get(f"/api/v1/namespaces/{NAMESPACE}/{resource}")["items"]}

    def job(self, resource: str) -> Json:
        return self.get(f"/apis/kubeflow.org/v1/namespaces/{NAMESPACE}/{resource}/train-{resource}")

    def has(self, resource: str, condition: str) -> bool:
        return is_condition_true((self.job(resource).get("status") or {}).get("conditions"), condition)

    def steps(self) -> dict[str, list[int]]:
        """The steps of each pod, so far."""
        return {file.name: [int(line) for line in file.read_text().split()] for file in self.folder.glob("train-*")}

    def steps_go_on(self) -> None:
        """Every pod makes ten more."""
        begin = {pod: len(steps) for pod, steps in self.steps().items()}
        until(
            lambda: all(len(steps) >= begin[pod] + 10 for pod, steps in self.steps().items()),
            "steps go on",
            seconds=PATIENCE,
            pause=SLOW_PAUSE,
        )


def job(resource: str, folder: Path) -> Json:
    kind, field, container, roles = JOBS[resource]
    name = {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    command = ["python", "-c", TRAIN, str(folder)]
    main = {"name": container, "image": "example.com/train:1", "command": command, "env": [name]}
    replicas = {"replicas": 1, "restartPolicy": "OnFailure", "template": {"spec": {"containers": [main]}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": f"train-{resource}", "namespace": NAMESPACE},
        "spec": {"runPolicy": {"cleanPodPolicy": "None"}, field: dict.fromkeys(roles, replicas)},
    }


def page_commands() -> list[str]:
    """The commands of the page that exchange the operators, in their order."""
    section = PAGE.read_text().partition("\n## On a cluster\n")[2].partition("\n## ")[0]
    return [
        command.strip() for block in re.findall(r"```sh\n(.*?)```", section, re.S) for command in block.splitlines()
    ]


@contextmanager
def training(folder: Path) -> Iterator[Cluster]:
    """A control plane with our node, on which jobs train that the training-operator has started and left behind."""
    theirs = TrainingOperator()
    with ControlPlane() as plane, joined(plane, folder / "node", IMAGES):
        theirs.install(plane)
        create_namespace(plane, NAMESPACE)
        cluster = Cluster(plane, folder / "steps")
        cluster.folder.mkdir()
        with theirs.running(plane):
            create(plane, *(job(resource, cluster.folder) for resource in JOBS))
            until(lambda: len(cluster.steps()) == 4, "four pods train", seconds=PATIENCE, pause=SLOW_PAUSE)
            until(
                lambda: all(cluster.has(resource, "Running") for resource in JOBS),
                "both jobs are Running",
                seconds=PATIENCE,
                pause=SLOW_PAUSE,
            )
        yield cluster


def test_the_operator_is_replaced_while_jobs_train(tmp_path: Path) -> None:
    with training(tmp_path) as cluster:
        pods, services = cluster.items("pods"), cluster.items("services")
        left = {resource: cluster.job(resource)["status"] for resource in JOBS}
        sent = {resource: events(cluster, resource) for resource in JOBS}
        cluster.steps_go_on()  # nobody serves the jobs

        for command in page_commands():
            exchange(cluster.plane, command)
        cluster.plane.kubectl(
            "-n", "trainyard", "wait", "deployment", "--all", "--for=condition=Available", f"--timeout={PATIENCE:.0f}s"
        )

        owners = {uid_of(cluster.job(resource)) for resource in JOBS}

        def adopted() -> bool:
            children = [*cluster.items("pods").values(), *cluster.items("services").values()]
            return all((child["metadata"].get("labels") or {}).get(OWNER) in owners for child in children)

        until(adopted, "all children have the label of their job", seconds=PATIENCE, pause=SLOW_PAUSE)
        until(
            lambda: all(cluster.job(resource)["status"].get("roles") for resource in JOBS),
            "a status of ours",
            seconds=PATIENCE,
            pause=SLOW_PAUSE,
        )
        cluster.steps_go_on()
        assert uids(cluster.items("pods")) == uids(pods) and uids(cluster.items("services")) == uids(services)
        for resource in JOBS:
            status = cluster.job(resource)["status"]
            assert status["startTime"] == left[resource]["startTime"] and status["restarts"] == 0
            assert [condition["type"] for condition in status["conditions"]] == ["Created", "Running"]

        (cluster.folder / "end").touch()
        for resource, (kind, *_) in JOBS.items():
            until(
                lambda resource=resource: cluster.has(resource, "Succeeded"),
                f"{resource} succeed",
                seconds=PATIENCE,
                pause=SLOW_PAUSE,
            )
            until(
                lambda resource=resource: len(events(cluster, resource)) > len(sent[resource]),
                "the event of the end",
                seconds=PATIENCE,
                pause=SLOW_PAUSE,
            )
            (ours,) = events(cluster, resource) - sent[resource]
            assert ours.startswith(f"{kind}Succeeded {kind} "), ours
        until(
            lambda: all(pod["status"]["phase"] == "Succeeded" for pod in cluster.items("pods").values()),
            "all end",
            seconds=PATIENCE,
            pause=SLOW_PAUSE,
        )
        assert uids(cluster.items("pods")) == uids(pods)
        for pod in cluster.items("pods").values():
            assert [container_status["restartCount"] for container_status in pod["status"]["containerStatuses"]] == [0]
        assert all(steps == list(range(len(steps))) for steps in cluster.steps().values()), cluster.steps()


def exchange(plane: ControlPlane, command: str) -> None:
    """Run a command of the page. The training-operator has no Deployment here; its process has ended by SIGTERM."""
    if " scale deployment training-operator " in command:
        return
    trainyard = f"{sys.executable} -m trainyard "
    kubectl = str(plane.programs["kubectl"])
    env = {"KUBECONFIG": str(plane.kubeconfig), "HOME": str(plane.folder), "PATH": "/usr/bin:/bin"}
    line = re.sub(r"\bkubectl ", f"{kubectl} ", command.replace("trainyard manifests", f"{trainyard}manifests"))
    completed = subprocess.run(
        ["sh", "-ec", line], env=env, capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert completed.returncode == 0, f"{command}\n{completed.stdout}{completed.stderr}"


def events(cluster: Cluster, resource: str) -> set[str]:
    """REASON MESSAGE (COUNT) of each event of the job."""
    return {
        f"{event['reason']} {event['message']} ({event.get('count') or 1})"
        for event in cluster.items("events").values()
        if event["involvedObject"]["name"] == f"train-{resource}"
    }


def uids(objects: dict[str, Json]) -> dict[str, str]:
    return {name: uid_of(item) for name, item in objects.items()}
