"""Stories of TrainerClient, one process each: `python trainer_program.py KUBECONFIG STORY`.

It runs in the environment of the Kubeflow SDK, without Trainyard. A story that fails, or in which the SDK warns, ends
the process with an exit code other than 0.
"""

from __future__ import annotations

import logging
import sys
import time

from kubeflow.common.types import KubernetesBackendConfig
from kubeflow.trainer import BuiltinTrainer, CustomTrainer, CustomTrainerContainer, Initializer, TrainerClient
from kubeflow.trainer.options import ActiveDeadlineSeconds, Annotations, Labels, Name
from kubeflow.trainer.types.types import (
    Event,
    HuggingFaceDatasetInitializer,
    HuggingFaceModelInitializer,
    TorchTuneConfig,
)

FRAMEWORKS = {
    "deepspeed-distributed": "deepspeed",
    "jax-distributed": "jax",
    "mlx-distributed": "mlx",
    "torch-distributed": "torch",
    "torchtune-llama3.2-1b": "torchtune",
    "torchtune-llama3.2-3b": "torchtune",
    "torchtune-qwen2.5-1.5b": "torchtune",
    "xgboost-distributed": "xgboost",
}


class Complaints(logging.Handler):
    """Keeps the warnings and errors that are logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def train(rate: float) -> None:
    """The source of this function is the program of the nodes."""
    print("rate", rate)


def runtimes(client: TrainerClient) -> None:
    """Those that Trainer ships."""
    listed = {runtime.name: runtime for runtime in client.list_runtimes()}
    assert {name: runtime.trainer.framework for name, runtime in listed.items()} == FRAMEWORKS
    assert {runtime.trainer.num_nodes for runtime in listed.values()} == {1}
    assert client.get_runtime("torch-distributed").trainer.image.startswith("pytorch/pytorch:")
    refused("absent", client.get_runtime, "absent")


def submissions(client: TrainerClient) -> None:
    """What `train` sends is stored, and read back."""
    options = [
        Name("mine"),
        Labels({"team": "vision"}),
        Annotations({"why": "test"}),
        ActiveDeadlineSeconds(600),
    ]
    trainer = CustomTrainer(
        func=train,
        func_args={"rate": 0.1},
        num_nodes=2,
        resources_per_node={"cpu": 1, "memory": "1Gi", "gpu": 1},
        env={"A": "b"},
        packages_to_install=["numpy"],
    )
    assert client.train(trainer=trainer, options=options) == "mine"
    initializer = Initializer(
        dataset=HuggingFaceDatasetInitializer(storage_uri="hf://tatsu-lab/alpaca"),
        model=HuggingFaceModelInitializer(storage_uri="hf://Qwen/Qwen2.5-1.5B-Instruct", access_token="t"),
    )
    container = CustomTrainerContainer(image="example.com/train:1", num_nodes=3)
    other = client.train(trainer=container, runtime="jax-distributed")
    built_in = BuiltinTrainer(config=TorchTuneConfig(num_nodes=1, resources_per_node={"gpu": 1}))
    tuned = client.train(trainer=built_in, runtime="torchtune-qwen2.5-1.5b", initializer=initializer)
    assert {job.name: (job.num_nodes, job.runtime.name) for job in client.list_jobs()} == {
        "mine": (2, "torch-distributed"),
        other: (3, "jax-distributed"),
        tuned: (1, "torchtune-qwen2.5-1.5b"),
    }
    assert [job.name for job in client.list_jobs(client.get_runtime("jax-distributed"))] == [other]
    for name in ("mine", other, tuned):
        client.delete_job(name)
    assert client.list_jobs() == []
    refused("mine", client.get_job, "mine")


def wait() -> None:
    """Until the pod is stopped."""
    import signal

    signal.pause()


def states(client: TrainerClient) -> None:
    """What the client says of a job whose image is not there, of one that runs, and of one that has failed."""
    container = CustomTrainerContainer(image="example.com/absent:1", num_nodes=1)
    name = client.train(runtime="jax-distributed", trainer=container)
    while "ErrImageNeverPull" not in {event.reason for event in events_of_job(client, name)}:
        time.sleep(0.2)
    job = client.get_job(name)
    assert (job.status, [step.status for step in job.steps]) == ("Created", ["Pending"])
    client.delete_job(name)
    name = client.train(runtime="jax-distributed", trainer=CustomTrainer(func=wait, num_nodes=2))
    job = client.wait_for_job_status(name, status={"Running"}, timeout=120, polling_interval=1)
    assert [step.status for step in job.steps] == ["Running", "Running"]
    client.delete_job(name)
    options = [ActiveDeadlineSeconds(1)]
    name = client.train(runtime="jax-distributed", trainer=CustomTrainer(func=wait, num_nodes=2), options=options)
    refused(f"TrainJob {name} is Failed", client.wait_for_job_status, name)
    assert client.get_job(name).status == "Failed"
    client.delete_job(name)


def events_of_job(client: TrainerClient, name: str) -> list[Event]:
    """The events of the TrainJob itself."""
    return [event for event in client.get_job_events(name) if event.involved_object_kind == "TrainJob"]


def all_reduce(rate: float) -> None:
    """As the function above; a backtick here would be run by the shell. Each of two processes adds its rank."""
    import torch
    import torch.distributed

    torch.distributed.init_process_group("gloo")
    ranks = torch.tensor([torch.distributed.get_rank()])
    torch.distributed.all_reduce(ranks)
    print("world", torch.distributed.get_world_size(), "sum", ranks.item(), "rate", rate, flush=True)
    torch.distributed.destroy_process_group()


def tour(client: TrainerClient) -> None:
    """From the function to its deletion, on two nodes with torchrun's rendezvous."""
    trainer = CustomTrainer(func=all_reduce, func_args={"rate": 0.1}, num_nodes=2)
    name = client.train(trainer=trainer)
    job = client.wait_for_job_status(name, status={"Running", "Complete"}, timeout=120, polling_interval=1)
    assert [step.name for step in job.steps] == ["node-0", "node-1"]
    lines = list(client.get_job_logs(name, follow=True))
    assert lines.count("world 2 sum 1 rate 0.1") == 1, lines
    job = client.wait_for_job_status(name, timeout=120, polling_interval=1)
    assert [step.status for step in job.steps] == ["Succeeded", "Succeeded"]
    lines = list(client.get_job_logs(name, step="node-1"))
    assert lines.count("world 2 sum 1 rate 0.1") == 1, lines
    assert {event.involved_object_kind for event in client.get_job_events(name)} >= {"Pod"}
    client.delete_job(name)
    assert client.list_jobs() == []


def refused(text: str, call: object, *arguments: object) -> None:
    """The call raises RuntimeError with that text."""
    message = "no error"
    try:
        call(*arguments)  # type: ignore[operator]
    except RuntimeError as error:
        message = str(error)
    assert text in message, message


STORIES = (runtimes, submissions, states, tour)


def main() -> int:
    """The story, by the name of its function; 1 where the SDK has warned."""
    kubeconfig, name = sys.argv[1:]
    complaints = Complaints()
    logging.basicConfig(level=logging.WARNING, handlers=[complaints])
    logging.captureWarnings(True)
    (story,) = (story for story in STORIES if story.__name__ == name)
    story(TrainerClient(KubernetesBackendConfig(config_file=kubeconfig)))
    print(*complaints.texts, sep="\n", file=sys.stderr)
    return 1 if complaints.texts else 0


if __name__ == "__main__":
    sys.exit(main())
