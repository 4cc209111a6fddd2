"""The operators under test: a process each, beside a control plane of tests.

    with TrainingOperator(gang="volcano").running(plane): ...

`install` puts an operator's definitions into a control plane, once; `running` starts it and waits until it works.

The training-operator's webhooks are called by URL on loopback, with certificates that the build has made
(operators_build.py). The folder that it reads them from is a constant of its program.
"""

from __future__ import annotations

import base64
import contextlib
import os
import signal
import ssl
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import yaml

from tests.drop_in.operators_build import operators
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_process import ControlPlaneProcess, free_ports
from trainyard import kinds
from trainyard.objects import GVK, Json, encode
from trainyard.objects.resources import CRD

GROUP = "kubeflow.org"
SERVING = Path("/tmp/k8s-webhook-server/serving-certs")  # a constant of the training-operator
LEASE = "/apis/coordination.k8s.io/v1/namespaces/mpi-operator/leases/mpi-operator"
HEALTH = "http://127.0.0.1:8080/healthz"  # the mpi-operator's port is a constant, too
REPOSITORY = Path(__file__).resolve().parents[2]
POD_GROUPS = Path(__file__).with_name("pod_groups.yaml")
UNVERIFIED = ssl._create_unverified_context()  # noqa: S323  (loopback)
KUBECTL_DELIVERY_IMAGE = "ghcr.io/kubeflow/training-v1/kubectl-delivery:latest"
"""The default of the training-operator; by default, ours uses no foreign image."""
LIMITS = ("1000", "2000")  # requests per second to the API server, and the burst: the default of 5 is slow


class OperatorUnderTest(Protocol):
    """What the comparison asks of an operator."""

    @property
    def job_kinds(self) -> Sequence[GVK]: ...

    def install(self, plane: ControlPlane) -> None:
        """Put its definitions into a control plane that has none of them."""
        ...

    def running(self, plane: ControlPlane, gang: str = "") -> contextlib.AbstractContextManager[ControlPlaneProcess]:
        """It serves all namespaces within the block. `gang`: the gang scheduler that it uses."""
        ...


def install_pod_groups(plane: ControlPlane) -> None:
    """The definitions of both gang schedulers, without the schedulers."""
    create(plane, *documents(POD_GROUPS))


class TrainingOperator:
    """Kubeflow's training-operator, with its webhooks."""

    def __init__(self) -> None:
        self.built = operators(report_build)
        self.manifests = self.built / "training-operator" / "manifests" / "base"
        self._definitions = [
            item for path in sorted((self.manifests / "crds").glob("kubeflow*")) for item in documents(path)
        ]
        self.job_kinds = [gvk for item in self._definitions for gvk in gvks_of(item)]
        self._port = 0

    def install(self, plane: ControlPlane) -> None:
        create(plane, *self._definitions)
        create(plane, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubeflow"}})
        (self._port,) = free_ports(1)
        create(plane, self._secret(), self.webhooks(self._port))

    @contextlib.contextmanager
    def running(self, plane: ControlPlane, gang: str = "") -> Iterator[ControlPlaneProcess]:
        command, urls = self.command(self._port, *([f"--gang-scheduler-name={gang}"] if gang else []))
        with process(plane, command, *urls) as operator:
            yield operator

    def command(self, port: int, *flags: str) -> tuple[list[str], list[str]]:
        """The command that serves the webhooks at this port, and the URLs that answer when it works."""
        SERVING.mkdir(parents=True, exist_ok=True)
        for file in (self.built / "webhook").iterdir():
            place_file(file, SERVING / file.name)
        (health,) = free_ports(1)
        command = [
            str(self.built / "bin" / "training-operator"),
            "--metrics-bind-address=0",
            f"--health-probe-bind-address=127.0.0.1:{health}",
            f"--webhook-server-port={port}",
            f"--kube-api-qps={LIMITS[0]}",
            f"--kube-api-burst={LIMITS[1]}",
            "--controller-threads=4",
            *flags,
        ]
        urls = [webhook["clientConfig"]["url"] for webhook in self.webhooks(port)["webhooks"]]
        return command, [f"http://127.0.0.1:{health}/readyz", *urls]

    def _secret(self) -> Json:
        data = {file.name: base64.b64encode(file.read_bytes()).decode() for file in (self.built / "webhook").iterdir()}
        metadata = {"name": "training-operator-webhook-cert", "namespace": "kubeflow"}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}

    def webhooks(self, port: int) -> Json:
        """Their configuration, for a webhook server at this port."""
        (configuration,) = documents(self.manifests / "webhook" / "manifests.yaml")
        configuration["metadata"]["name"] = "validator.training-operator.kubeflow.org"
        bundle = base64.b64encode((self.built / "webhook" / "ca.crt").read_bytes()).decode()
        for webhook in configuration["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": bundle}
        return configuration


class MpiOperator:
    """Kubeflow's mpi-operator, which serves MPIJob v2beta1. Not in one control plane with the training-operator: both
    define mpijobs.kubeflow.org."""

    def __init__(self) -> None:
        self.built = operators(report_build)
        self._definitions = documents(self.built / "mpi-operator" / "manifests" / "base" / "kubeflow.org_mpijobs.yaml")
        self.job_kinds = [gvk for item in self._definitions for gvk in gvks_of(item)]

    def install(self, plane: ControlPlane) -> None:
        create(plane, *self._definitions)
        create(plane, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mpi-operator"}})

    @contextlib.contextmanager
    def running(self, plane: ControlPlane, gang: str = "") -> Iterator[ControlPlaneProcess]:
        flags = [f"--kube-api-qps={LIMITS[0]}", f"--kube-api-burst={LIMITS[1]}", "--threadiness=4"]
        flags += ["--controller-queue-rate-limit=1000", *([f"--gang-scheduling={gang}"] if gang else [])]
        code, lease = plane.ask("DELETE", LEASE)
        assert code in (200, 404), lease  # of an operator before this one: it would wait until that lease ends
        with process(plane, [str(self.built / "bin" / "mpi-operator"), *flags], HEALTH) as operator:
            plane.wait_for(LEASE)  # it is healthy before it leads
            yield operator


class Trainyard:
    """Our operator, as `trainyard operator` starts it, in compressed time. It serves the kinds of Kubeflow's
    operators."""

    def __init__(self, group: str = GROUP, module: str = "tests.drop_in.compressed_time") -> None:
        """`module` is the program: `trainyard` itself keeps to the clock."""
        self._module = module
        self.kinds = [kind for kind in kinds.ALL if kind.gvk.group == group]
        self._definitions = our_definitions(group)
        self.job_kinds = [gvk for item in self._definitions for gvk in gvks_of(item)]

    def install(self, plane: ControlPlane) -> None:
        create(plane, *self._definitions)

    @contextlib.contextmanager
    def running(self, plane: ControlPlane, gang: str = "") -> Iterator[ControlPlaneProcess]:
        (health,) = free_ports(1)
        names = ",".join(sorted({kinds.unique_name(kind) for kind in self.kinds}))
        command = [sys.executable, "-m", self._module, "operator", "--kinds", names]
        command += ["--metrics-bind-address", f"127.0.0.1:{health}", *(["--gang-scheduler-name", gang] if gang else [])]
        command += ["--mpi-kubectl-delivery-image", KUBECTL_DELIVERY_IMAGE]
        with process(plane, command, f"http://127.0.0.1:{health}/readyz") as operator:
            yield operator


@contextlib.contextmanager
def process(plane: ControlPlane, command: list[str], *ready: str, **env: str) -> Iterator[ControlPlaneProcess]:
    """An operator's process within the block, as `start_process` starts it."""
    operator = start_process(plane, command, *ready, **env)
    try:
        yield operator
        if not operator.alive:
            raise operator.complain("ended while it was under test")
    finally:
        operator.end(signal.SIGTERM, 10.0)


def start_process(plane: ControlPlane, command: list[str], *ready: str, **env: str) -> ControlPlaneProcess:
    """An operator's process with the administrator's kubeconfig, from when each URL of `ready` answers 200. Its log is
    in the folder of the control plane. `env`: further variables of its environment."""
    name = Path(command[0]).name
    env = {
        **env,
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(plane.folder),
        "KUBECONFIG": str(plane.kubeconfig),
        "MY_POD_NAMESPACE": "kubeflow",
        "PYTHONPATH": str(REPOSITORY),
    }
    operator = ControlPlaneProcess(name, command, plane.folder / "logs" / f"{name}.log", env)
    operator.start()
    try:
        for url in ready:
            operator.wait_until(lambda url=url: answers(url), f"{url} answered")
    except BaseException:
        operator.end()
        raise
    return operator


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2, context=UNVERIFIED) as answer:  # noqa: S310  (loopback)
            return bool(answer.status == 200)
    except OSError:
        return False


def place_file(source: Path, target: Path) -> None:
    """Copy it where the content differs, at once, so that a program that reads it meanwhile has a whole file."""
    if target.exists() and target.read_bytes() == source.read_bytes():
        return
    part = target.with_name(f"{target.name}.{os.getpid()}")
    part.write_bytes(source.read_bytes())
    part.replace(target)


def documents(path: Path) -> list[Json]:
    return [item for item in yaml.load_all(path.read_text(), yaml.CSafeLoader) if item]


def our_definitions(group: str = GROUP) -> list[Json]:
    """The definitions of our kinds of that group, each once: several versions of a kind share one."""
    definitions = [kinds.crd(kind) for kind in kinds.ALL if kind.gvk.group == group]
    return list({item["metadata"]["name"]: item for item in definitions}.values())


def gvks_of(definition: Json) -> list[GVK]:
    """What it defines: a kind in each version that is served."""
    spec, names = definition["spec"], definition["spec"]["names"]
    return [
        GVK(spec["group"], version["name"], names["kind"], names["plural"])
        for version in spec["versions"]
        if version["served"]
    ]


def create(plane: ControlPlane, *items: Json) -> None:
    """Create them, and wait until the definitions among them are served."""
    listed = {"apiVersion": "v1", "kind": "List", "items": list(items)}
    plane.kubectl("create", "-f", "-", stdin=encode(listed).decode())
    for item in items:
        for gvk in gvks_of(item) if item["kind"] == CRD.kind else ():
            plane.wait_for(f"/apis/{gvk.api_version}/{gvk.plural}")


def report_build(text: str) -> None:
    """Print it beside the output of the program that waits for the build."""
    print(f"operators: {text}", file=sys.stderr, flush=True)
