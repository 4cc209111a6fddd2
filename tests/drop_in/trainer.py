"""Kubeflow's Trainer with the JobSet controller that makes its Pods' Jobs, beside a control plane of tests.

Its webhooks are called by URL on loopback. It reads their certificates from a folder below TMPDIR.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.drop_in.job_set import JobSet
from tests.drop_in.operators import LIMITS, create, documents, gvks_of, place_file, process, report_build
from tests.drop_in.operators_build import TRAINER_MODULE, operators
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_process import ControlPlaneProcess, free_ports
from trainyard.objects import Json, encode

GROUP = "trainer.kubeflow.org"
NAMESPACE = "kubeflow-system"
VALIDATION_LABEL = f"{GROUP}/webhook-validation"
IMAGES = "ghcr.io/kubeflow/trainer/"
"""Trainer's own images, to whose names its installation adds its version."""
PROBE: Json = {
    "apiVersion": f"{GROUP}/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": "probe"},
    "spec": {"runtimeRef": {"name": "torch-distributed"}},
}


class Trainer:
    """Trainer's controller manager and JobSet's, with their webhooks, and the runtimes that Trainer ships."""

    def __init__(self) -> None:
        self.built = operators(report_build, (TRAINER_MODULE,))
        self.manifests = self.built / TRAINER_MODULE.name / "manifests" / "base"
        self._job_set = JobSet()
        crds = sorted((self.manifests / "crds").glob("trainer*"))
        self._definitions = [item for path in crds for item in documents(path)]
        self.job_kinds = [gvk for item in self._definitions for gvk in gvks_of(item)]
        self._port = 0

    def install(self, plane: ControlPlane) -> None:
        self._job_set.install(plane)
        create(plane, *self._definitions)
        create(plane, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        (self._port,) = free_ports(1)
        create(plane, *self.webhooks(self._port))

    @contextlib.contextmanager
    def running(self, plane: ControlPlane, gang: str = "") -> Iterator[ControlPlaneProcess]:
        command, urls = self.command(plane, self._port)
        folder = plane.folder / "trainer"
        certificates = folder / "k8s-webhook-server" / "serving-certs"
        certificates.mkdir(parents=True, exist_ok=True)
        for file in (self.built / "webhook").iterdir():
            place_file(file, certificates / file.name)
        with (
            self._job_set.running(plane, gang),
            process(plane, command, *urls, TMPDIR=str(folder)) as operator,
        ):
            create(plane, *self.runtimes())
            plane.wait_until(lambda: self._knows_runtimes(plane), "Trainer knew its runtimes")
            yield operator

    def command(self, plane: ControlPlane, port: int) -> tuple[list[str], list[str]]:
        """The command that serves the webhooks at this port, and the URLs that answer when it works."""
        (health,) = free_ports(1)
        config = {
            "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
            "kind": "Configuration",
            "webhook": {"host": "127.0.0.1", "port": port},
            "certManagement": {"enable": False},
            "leaderElection": {"leaderElect": False},
            "metrics": {"bindAddress": "0", "secureServing": False},
            "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
            "controller": {"groupKindConcurrency": {f"TrainJob.{GROUP}": 5}},
            "clientConnection": {"qps": int(LIMITS[0]), "burst": int(LIMITS[1])},
        }
        place = plane.folder / f"trainer-{port}.json"
        place.write_bytes(encode(config))
        command = [str(self.built / "bin" / TRAINER_MODULE.name), f"--config={place}"]
        urls = [webhook["clientConfig"]["url"] for item in self.webhooks(port) for webhook in item["webhooks"]]
        return command, [f"http://127.0.0.1:{health}/readyz", *urls]

    def webhooks(self, port: int) -> list[Json]:
        """Their configurations, for a webhook server at this port, as Trainer's kustomization changes them."""
        bundle = base64.b64encode((self.built / "webhook" / "ca.crt").read_bytes()).decode()
        configurations = documents(self.manifests / "webhook" / "manifests.yaml")
        for item in configurations:
            item["metadata"]["name"] = "defaulter" if item["kind"].startswith("Mutating") else "validator"
            item["metadata"]["name"] += f".{GROUP}"
            for webhook in item["webhooks"]:
                path = webhook["clientConfig"]["service"]["path"]
                webhook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": bundle}
                if path.endswith("runtime"):
                    skipped = {"key": VALIDATION_LABEL, "operator": "NotIn", "values": ["disabled"]}
                    webhook["objectSelector"] = {"matchExpressions": [skipped]}
        return configurations

    def runtimes(self) -> list[Json]:
        """The ClusterTrainingRuntimes that Trainer ships, as its installation changes them."""
        paths = sorted((self.manifests / "runtimes").rglob("*.yaml"))
        shipped = [item for path in paths if path.stem != "kustomization" for item in documents(path)]
        for runtime in shipped:
            runtime["metadata"]["labels"][VALIDATION_LABEL] = "disabled"
            for job in runtime["spec"]["template"]["spec"]["replicatedJobs"]:
                for container in job["template"]["spec"]["template"]["spec"]["containers"]:
                    if container["image"].startswith(IMAGES):
                        container["image"] += f":{TRAINER_MODULE.version}"
        return shipped

    def _knows_runtimes(self, plane: ControlPlane) -> bool:
        """Its webhook reads runtimes from its cache."""
        path = f"/apis/{PROBE['apiVersion']}/namespaces/default/trainjobs?dryRun=All"
        return plane.ask("POST", path, PROBE)[0] == 201


def trainer_examples() -> list[tuple[str, list[Json]]]:
    """The manifests that Trainer's repository has as examples: name of the file, its documents."""
    folder: Path = operators(lambda text: None, (TRAINER_MODULE,)) / TRAINER_MODULE.name / "examples" / "yaml"
    return [(path.stem, documents(path)) for path in sorted(folder.glob("*.yaml"))]
