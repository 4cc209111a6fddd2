"""Stories of TrainingClient, one process each: `python client_program.py KUBECONFIG FOLDER STORY`.

It runs in the environment of the SDK, without Trainyard. A story that fails ends the process with a traceback. FOLDER
is shared with the pods: the container of `waiting_job` ends when `FOLDER/NAME` exists.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kubeflow.training import TrainingClient, models
from kubeflow.training.constants import constants

NAMESPACE = "team"
POLL = {"polling_interval": 0.2, "wait_timeout": 60}
IMAGE = "example.com/train:1"
WAIT = "import os, sys, time; print(*sys.argv, flush=True)\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.02)"


def waiting_job(folder: Path, name: str, workers: int = 1) -> models.KubeflowOrgV1PyTorchJob:
    """A master and workers that print their arguments, and end when FOLDER/NAME exists."""
    container = models.V1Container(
        name="pytorch", image=IMAGE, command=["python", "-c", WAIT], args=[str(folder / name), "trained"]
    )
    template = models.V1PodTemplateSpec(spec=models.V1PodSpec(containers=[container]))
    replicas = {
        role: models.KubeflowOrgV1ReplicaSpec(replicas=count, restart_policy="OnFailure", template=template)
        for role, count in (("Master", 1), ("Worker", workers))
    }
    return models.KubeflowOrgV1PyTorchJob(
        api_version=constants.API_VERSION,
        kind=constants.PYTORCHJOB_KIND,
        metadata=models.V1ObjectMeta(name=name, namespace=NAMESPACE),
        spec=models.KubeflowOrgV1PyTorchJobSpec(
            run_policy=models.KubeflowOrgV1RunPolicy(clean_pod_policy="None"), pytorch_replica_specs=replicas
        ),
    )


def life_of_a_job(client: TrainingClient, folder: Path) -> None:
    """Create, read, log and delete a PyTorchJob that is made of models."""
    client.create_job(waiting_job(folder, "mnist"))
    client.wait_for_job_conditions("mnist", expected_conditions={constants.JOB_CONDITION_RUNNING}, **POLL)
    assert client.is_job_created("mnist") and client.is_job_running("mnist")
    assert not (client.is_job_succeeded("mnist") or client.is_job_failed("mnist") or client.is_job_restarting("mnist"))

    job = client.get_job("mnist")
    assert isinstance(job, models.KubeflowOrgV1PyTorchJob), type(job)
    assert job.spec.pytorch_replica_specs["Worker"].replicas == 1 and job.spec.run_policy.clean_pod_policy == "None"
    conditions = client.get_job_conditions("mnist")
    assert [condition.type for condition in conditions] == ["Created", "Running"], conditions
    assert conditions[0].reason == "PyTorchJobCreated", conditions
    assert [item.metadata.name for item in client.list_jobs()] == ["mnist"]
    assert client.list_jobs(job_kind="TFJob") == []

    names = ["mnist-master-0", "mnist-worker-0"]
    assert sorted(client.get_job_pod_names("mnist")) == names
    assert client.get_job_pod_names("mnist", is_master=True) == names[:1]
    assert client.get_job_pod_names("mnist", replica_type="worker", replica_index=0) == names[1:]
    assert [pod.status.phase for pod in client.get_job_pods("mnist", is_master=True)] == ["Running"]

    (folder / "mnist").touch()
    finished = client.wait_for_job_conditions("mnist", **POLL)
    assert client.is_job_succeeded("mnist") and finished.status.completion_time is not None
    assert finished.status.replica_statuses["Master"].succeeded == 1, finished.status
    text = f"-c {folder / 'mnist'} trained\n"
    assert client.get_job_logs("mnist") == ({names[0]: text}, {})
    logs, events = client.get_job_logs("mnist", is_master=False, verbose=True)
    assert logs == dict.fromkeys(names, text)
    assert any("Created pod: mnist-worker-0" in line for line in events["pytorchjob/mnist"]), events
    assert any("is successfully completed" in line for line in events["pytorchjob/mnist"]), events

    client.delete_job("mnist")
    refused("Failed to get PyTorchJob: team/mnist", client.get_job, "mnist")
    assert client.list_jobs() == []


def followed_logs(client: TrainingClient, folder: Path) -> None:
    """`follow` ends with the container."""
    client.create_job(waiting_job(folder, "followed"))
    client.wait_for_job_conditions("followed", expected_conditions={constants.JOB_CONDITION_RUNNING}, **POLL)
    (folder / "followed").touch()
    logs, _ = client.get_job_logs("followed", follow=True)
    assert logs == {"followed-master-0": f"-c {folder / 'followed'} trained"}, logs


def suspend_and_resume(client: TrainingClient, folder: Path) -> None:
    """`update_job` patches a job that runs."""
    job = waiting_job(folder, "patched")
    client.create_job(job)
    client.wait_for_job_conditions("patched", expected_conditions={constants.JOB_CONDITION_RUNNING}, **POLL)
    job.spec.run_policy.suspend = True
    client.update_job(job, "patched")
    wait_for(lambda: client.get_job_pod_names("patched") == [])
    assert client.get_job_conditions("patched")[-1].type == "Suspended"
    job.spec.run_policy.suspend = False
    job.metadata.labels = {"team": "vision"}
    client.update_job(job, "patched")
    client.wait_for_job_conditions("patched", expected_conditions={constants.JOB_CONDITION_RUNNING}, **POLL)
    assert client.get_job("patched").metadata.labels == {"team": "vision"}
    assert len(client.get_job_pod_names("patched")) == 2
    (folder / "patched").touch()
    client.wait_for_job_conditions("patched", **POLL)


def train_pytorch(parameters: dict[str, float]) -> None:
    """The source of this function is the program of the pods."""
    import os

    print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "rate", parameters["rate"])


def train_tensorflow() -> None:
    """As above; the cluster is in TF_CONFIG."""
    import json
    import os

    config = json.loads(os.environ["TF_CONFIG"])
    print(config["task"]["type"], {name: len(hosts) for name, hosts in config["cluster"].items()})


def functions(client: TrainingClient, folder: Path) -> None:
    """`create_job` with a Python function: the function's source is the program of every pod."""
    client.create_job(
        name="function",
        base_image=IMAGE,
        train_func=train_pytorch,
        parameters={"rate": 0.1},
        num_workers=1,
        labels={"team": "vision"},
        env_vars={"PYTHONUNBUFFERED": "1"},
        resources_per_worker={"cpu": "100m", "memory": "200Mi"},
    )
    client.create_job(
        name="chief",
        job_kind="TFJob",
        base_image=IMAGE,
        train_func=train_tensorflow,
        num_chief_replicas=1,
        num_ps_replicas=0,
        num_workers=1,
    )
    client.wait_for_job_conditions("function", **POLL)
    assert client.get_job("function").metadata.labels == {"team": "vision"}
    assert client.get_job_logs("function")[0] == {"function-master-0": "rank 0 of 1 rate 0.1\n"}
    client.wait_for_job_conditions("chief", job_kind="TFJob", **POLL)
    logs, _ = client.get_job_logs("chief", job_kind="TFJob", is_master=False, replica_type="chief")
    assert logs == {"chief-chief-0": "chief {'chief': 1, 'ps': 0, 'worker': 1}\n"}, logs


def all_reduce() -> None:
    """As above: each of two processes adds its rank. Where a process group is not destroyed, a thread of gloo may abort
    the process at its exit; its pod then starts again, without a peer."""
    import torch
    import torch.distributed

    torch.distributed.init_process_group("gloo")
    ranks = torch.tensor([torch.distributed.get_rank()])
    torch.distributed.all_reduce(ranks)
    print("world", torch.distributed.get_world_size(), "sum", ranks.item(), flush=True)
    torch.distributed.destroy_process_group()


def torchrun(client: TrainingClient, folder: Path) -> None:
    """With several workers the SDK starts the function by torchrun, in its own default image."""
    client.create_job(name="reduce", train_func=all_reduce, num_workers=2, num_procs_per_worker=1)
    client.wait_for_job_conditions("reduce", **POLL)
    wait_for(lambda: {pod.status.phase for pod in client.get_job_pods("reduce")} == {"Succeeded"})
    logs, _ = client.get_job_logs("reduce", is_master=False)
    assert logs.keys() == {"reduce-master-0", "reduce-worker-0"}
    assert all("world 2 sum 1\n" in text for text in logs.values()), logs


def refusals(client: TrainingClient, folder: Path) -> None:
    """What goes wrong is told as with the Training Operator."""
    job = waiting_job(folder, "wrong")
    job.spec.pytorch_replica_specs["Master"].replicas = 2
    refused("Failed to create PyTorchJob: team/wrong", client.create_job, job)
    job = waiting_job(folder, "fails")
    for replicas in job.spec.pytorch_replica_specs.values():
        replicas.restart_policy = "Never"
        replicas.template.spec.containers[0].command = ["python", "-c", "raise SystemExit(3)"]
    client.create_job(job)
    refused("PyTorchJob team/fails is Failed", client.wait_for_job_conditions, "fails", **POLL)
    assert client.is_job_failed("fails")
    refused("Failed to create PyTorchJob: team/fails", client.create_job, job)
    refused("Failed to delete PyTorchJob: team/absent", client.delete_job, "absent")


def queues(client: TrainingClient, folder: Path) -> None:
    """A queue of Kueue that is not there: the SDK warns, and the job has the label."""
    job = waiting_job(folder, "queued")
    job.spec.run_policy.suspend = True
    client.create_job(job, queue_name="research")
    assert client.get_job("queued").metadata.labels == {"kueue.x-k8s.io/queue-name": "research"}


def refused(text: str, call: Any, *arguments: Any, **options: Any) -> None:
    """The call raises RuntimeError with that text."""
    message = "no error"
    try:
        call(*arguments, **options)
    except RuntimeError as error:
        message = str(error)
    assert text in message, f"{call.__name__}: {message}"


def wait_for(condition: Callable[[], bool]) -> None:
    """Asks the API server again and again, for a minute at most."""
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, "it did not come so far in a minute"
        time.sleep(0.1)


STORIES = (life_of_a_job, followed_logs, suspend_and_resume, functions, torchrun, refusals, queues)


def main() -> None:
    """The story, by the name of its function."""
    kubeconfig, folder, name = sys.argv[1:]
    logging.basicConfig(level=logging.WARNING)
    (story,) = (story for story in STORIES if story.__name__ == name)
    story(TrainingClient(config_file=kubeconfig, namespace=NAMESPACE), Path(folder))


if __name__ == "__main__":
    main()
