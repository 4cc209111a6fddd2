"""Commands against a cluster in this process: the real commands, with their own connection over TLS."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import yaml
from click.testing import CliRunner

from tests.support.waiting import SLOW_PAUSE, until_async
from trainyard.app.local import LocalCluster, LocalClusterOptions
from trainyard.cli import main
from trainyard.objects import Json

PATIENCE = 20.0


class Answer(NamedTuple):
    code: int
    out: str
    err: str


class TrainyardCommands:
    """`await trainyard("get", "-o", "wide")`."""

    def __init__(self, cluster: LocalCluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.kubeconfig = cluster.write_kubeconfig()

    async def __call__(self, command: str, *arguments: str) -> Answer:
        return await asyncio.to_thread(run_in_process, command, "--kubeconfig", str(self.kubeconfig), *arguments)

    async def submit(self, *objects: Json, arguments: tuple[str, ...] = ()) -> Answer:
        path = self.folder / "given.yaml"
        path.write_text(yaml.safe_dump_all(objects))
        return await self("submit", str(path), *arguments)

    async def until(self, text: str | tuple[str, ...], command: str, *arguments: str, without: str = "") -> Answer:
        """Repeat the command until its output has this text, or all of these, and not `without`."""
        texts = (text,) if isinstance(text, str) else text

        def accept(answer: Answer) -> bool:
            return all(text in answer.out for text in texts) and (not without or without not in answer.out)

        awaited = f"{' and '.join(map(repr, texts))} in `trainyard {' '.join([command, *arguments])}`"
        return await until_async(lambda: self(command, *arguments), awaited, accept=accept, pause=SLOW_PAUSE)


def run_in_process(*line: str) -> Answer:
    """One command. Whatever it raises that is no exit is a bug."""
    result = CliRunner().invoke(main, list(line), prog_name="trainyard")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Answer(result.exit_code, result.stdout, result.stderr)


@asynccontextmanager
async def commands_of_cluster(
    folder: Path, network: str = "shared", images: Sequence[Path] = ()
) -> AsyncIterator[TrainyardCommands]:
    options = LocalClusterOptions(
        network=network, images=tuple(images), cache=folder / "cache", say=lambda text: None, parent=folder
    )
    async with LocalCluster(options) as cluster:
        yield TrainyardCommands(cluster, folder)


SLEEP = "print('up')\nimport time\ntime.sleep(600)"


def container(name: str, code: str | None, **more: object) -> Json:
    run = {} if code is None else {"command": [sys.executable, "-uc", code]}
    return {"name": name, "image": "example.invalid/none", **run, **more}


def role(kind: str, code: str | None, count: int = 1) -> Json:
    spec = {"containers": [container("tensorflow", code)], "restartPolicy": "OnFailure"}
    return {"tfReplicaType": kind, "replicas": count, "template": {"spec": spec}}


def tfjob(*roles: Json, name: str = "mnist", **spec: object) -> Json:
    body = {"replicaSpecs": list(roles or [role("MASTER", SLEEP)]), **spec}
    return {"apiVersion": "tensorflow.org/v1alpha1", "kind": "TfJob", "metadata": {"name": name}, "spec": body}


def elastic(code: str = SLEEP, name: str = "imagenet", replicas: int = 2, **spec: object) -> Json:
    template = {"spec": {"containers": [container("elasticjob-worker", code)]}}
    worker = {"replicas": replicas, "restartPolicy": "ExitCode", "template": template}
    own = {"rdzvEndpoint": "etcd-service:2379", "minReplicas": 2, "maxReplicas": 3, **spec}
    body = {**own, "replicaSpecs": {"Worker": worker}}
    meta = {"name": name}
    return {"apiVersion": "elastic.pytorch.org/v1alpha1", "kind": "ElasticJob", "metadata": meta, "spec": body}


def chainer(name: str = "chain") -> Json:
    template = {"spec": {"containers": [container("chainer", SLEEP)]}}
    body = {
        "backend": "mpi",
        "master": {"template": template},
        "workerSets": {"ws": {"replicas": 2, "template": template}},
    }
    meta = {"name": name}
    return {"apiVersion": "kubeflow.org/v1alpha1", "kind": "ChainerJob", "metadata": meta, "spec": body}
