"""A namespace of a real node with an operator of its own, and what a user of the namespace types.

The operator is `trainyard operator` as a process, with the rights that we install for one namespace. The user is a
ServiceAccount that is bound to the ClusterRole `edit` of Kubernetes, to which our chart adds rights on jobs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.control_plane.fault_stories import Program, apply, enlist
from tests.support import waiting
from tests.support.control_plane_fixtures import create_namespace
from tests.support.control_plane_process import ControlPlaneError
from tests.support.real_node import RealNode
from tests.support.waiting import SLOW_PAUSE
from trainyard.app.install.installation import user_roles
from trainyard.objects import Json, encode, find_condition, is_condition_true, name_of, uid_of
from trainyard.objects.labels import OWNER

IMAGE = "python:3.11"
PATIENCE = 300.0  # bounds a failure: twenty jobs start at once on two cores, which may have other work
COMMAND_SECONDS = 120.0
until = partial(waiting.until, seconds=PATIENCE, pause=SLOW_PAUSE)


class Stage:
    """The namespace, its operator, and the user's commands."""

    def __init__(self, node: RealNode, namespace: str, folder: Path) -> None:
        self.node, self.namespace, self.folder = node, namespace, folder
        self.operator = Program(enlist(node, namespace, folder), "--kinds", "all")
        self.kubeconfig = self.user("user", "edit")

    @property
    def path(self) -> str:
        """Of objects of the core group."""
        return f"/api/v1/namespaces/{self.namespace}"

    # --- jobs

    def create(self, *objects: Json) -> None:
        document = {"apiVersion": "v1", "kind": "List", "items": objects}
        self.kubectl("create", "-f", "-", stdin=encode(document).decode())

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        return self.node.kubectl("-n", self.namespace, *arguments, stdin=stdin)

    def job(self, job: Json) -> Json:
        """The stored job; {} if there is none."""
        code, stored = self.node.ask("GET", self._path_of(job))
        assert code in (200, 404), stored
        return stored if code == 200 else {}

    def edit(self, job: Json, **spec: Any) -> None:
        code, answer = self.node.ask("PATCH", self._path_of(job), {"spec": spec})
        assert code == 200, answer

    def until(self, job: Json, awaited: str, accept: Callable[[Json], object]) -> Json:
        """The stored job, as soon as `accept` is true of it."""
        return until(
            lambda: self.job(job),
            f"{job['kind']} {name_of(job)} {awaited}",
            accept=accept,
            context=lambda: self._context(job),
        )

    def until_condition(self, job: Json, condition: str) -> Json:
        """Wait until the condition is true; the condition. A job that has ended otherwise is not waited for."""
        ends = {"Succeeded", "Failed"} | {condition}

        def accept(stored: Json) -> bool:
            return any(is_condition_true(conditions_of(stored), end) for end in ends)

        stored = self.until(job, f"is {condition}", accept)
        assert is_condition_true(conditions_of(stored), condition), self._context(job)
        return find_condition(conditions_of(stored), condition) or {}

    def pods(self, job: Json) -> dict[str, Json]:
        """By name, those that the job's operator has made."""
        stored = self.job(job)
        return self._pods(f"{OWNER}={uid_of(stored)}") if stored else {}

    def until_running(self, job: Json, count: int, but: Json | None = None) -> dict[str, Json]:
        """The pods, when so many run and no others are left, none of them one of `but`."""
        old = {uid_of(pod) for pod in (but or {}).values()}

        def accept(pods: dict[str, Json]) -> bool:
            phases = [pod["status"].get("phase") for pod in pods.values()]
            return phases == ["Running"] * count and not old & {uid_of(pod) for pod in pods.values()}

        return until(
            lambda: self.pods(job),
            f"{count} pods of {name_of(job)} run",
            accept=accept,
            context=lambda: self._context(job),
        )

    def logs(self, pod: str, container: str = "") -> str:
        return self.kubectl("logs", pod, *(["-c", container] if container else []))

    def _pods(self, labels: str) -> dict[str, Json]:
        code, answer = self.node.ask("GET", f"{self.path}/pods?labelSelector={labels}")
        assert code == 200, answer
        return {name_of(pod): pod for pod in answer["items"]}

    def _path_of(self, job: Json) -> str:
        plural = f"{job['kind'].lower()}s"
        return f"/apis/{job['apiVersion']}/namespaces/{self.namespace}/{plural}/{name_of(job)}"

    def _context(self, job: Json) -> str:
        return "\n".join(
            [
                self.trainyard("why", name_of(job)).stdout,
                self.kubectl("get", "pods", "-o", "wide"),
                *(self._log_of(name) for name in self.pods(job)),
                "\n".join(self.operator.output().splitlines()[-15:]),
            ]
        )

    def _log_of(self, pod: str) -> str:
        try:
            return f"{pod}: {self.kubectl('logs', pod, '--all-containers', '--tail=15')}"
        except ControlPlaneError as error:
            return f"{pod}: {error}"

    # --- the user

    def user(self, name: str, *roles: str) -> Path:
        """The kubeconfig of a ServiceAccount that is bound to these ClusterRoles in the namespace."""
        group = "rbac.authorization.k8s.io"
        subject = {"kind": "ServiceAccount", "name": name, "namespace": self.namespace}
        bindings = [
            {
                "apiVersion": f"{group}/v1",
                "kind": "RoleBinding",
                "metadata": {"name": f"{name}-{role}"},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
                "subjects": [subject],
            }
            for role in roles
        ]
        self.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}, *bindings)
        token = self.kubectl("create", "token", name).strip()
        config = json.loads(self.node.kubectl("config", "view", "--raw", "--flatten", "--minify", "-o", "json"))
        config["users"][0]["user"] = {"token": token}
        config["contexts"][0]["context"]["namespace"] = self.namespace
        path = self.folder / f"{name}.kubeconfig"
        path.touch(mode=0o600)
        path.write_bytes(encode(config))
        return path

    def command(self, *arguments: str, kubeconfig: Path | None = None) -> tuple[list[str], dict[str, str]]:
        """The words and the environment of a command of the user."""
        home = str(self.folder)
        env = {**os.environ, "KUBECONFIG": str(kubeconfig or self.kubeconfig), "HOME": home, "XDG_STATE_HOME": home}
        return [sys.executable, "-m", "trainyard", *arguments], {**env, "COLUMNS": "80", "NO_COLOR": "1"}

    def trainyard(self, *arguments: str, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
        """A command of the user, to its end."""
        command, env = self.command(*arguments, kubeconfig=kubeconfig)
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=COMMAND_SECONDS)


@contextmanager
def staged(node: RealNode, namespace: str, folder: Path) -> Iterator[Stage]:
    """The operator leads before the block, and ends after it."""
    create_namespace(node, namespace)
    apply(node, *user_roles())
    stage = Stage(node, namespace, folder)
    stage.operator.start()
    try:
        until(stage.operator.leads, "the operator leads", context=stage.operator.output)
        yield stage
    finally:
        node.ask("DELETE", f"/api/v1/namespaces/{namespace}")
        stage.operator.process.end()


def conditions_of(job: Json) -> list[Json]:
    conditions: list[Json] = (job.get("status") or {}).get("conditions") or []
    return conditions


# --- manifests


def job_of(api_version: str, kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def container(name: str, *command: str, image: str = IMAGE, **fields: Any) -> Json:
    return {"name": name, "image": image, **({"command": list(command)} if command else {}), **fields}


def template(*containers: Json, **pod: Any) -> Json:
    """A pod template. Its pods are killed at once: the programs of tests do not heed SIGTERM."""
    return {"spec": {"terminationGracePeriodSeconds": 0, "containers": list(containers), **pod}}


def pytorch_job(
    name: str, master: Json, worker: Json | None = None, workers: int = 1, restart: str = "Never", **run_policy: Any
) -> Json:
    """Of pod templates; the container is `pytorch`."""
    roles = {"Master": {"replicas": 1, "restartPolicy": restart, "template": master}}
    if worker is not None:
        roles["Worker"] = {"replicas": workers, "restartPolicy": restart, "template": worker}
    return job_of("kubeflow.org/v1", "PyTorchJob", name, {"runPolicy": run_policy, "pytorchReplicaSpecs": roles})
