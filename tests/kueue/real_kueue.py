"""Kueue's manager with its webhooks, beside a control plane of tests. It is built once per machine.

The folder that it reads its certificates from is a constant of its program: only root can run it here.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.drop_in.operators import LIMITS, create, documents, place_file, process, report_build
from tests.drop_in.operators_build import KUEUE_MODULE, operators
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_process import free_ports
from trainyard.objects import Json, encode

CERTIFICATES = Path("/etc/kueue/metrics/certs")  # a constant of its program
NAMESPACE = "kueue-system"
API_VERSION = "kueue.x-k8s.io/v1beta2"
KUBEFLOW = [f"kubeflow.org/{kind}" for kind in ("tfjob", "pytorchjob", "xgboostjob", "paddlejob", "jaxjob", "mpijob")]
FRAMEWORKS = [*KUBEFLOW, "batch/job", "pod", "statefulset"]
"""The integrations that Kueue's own configuration enables, as far as the resources exist here."""
RESOURCES = frozenset(
    {"jobs", "pods", "statefulsets", "trainjobs", *(f"{name.partition('/')[2]}s" for name in KUBEFLOW)}
)
"""Of these and of Kueue's own objects the webhooks are called."""


class RealKueue:
    """Kueue of the version of KUEUE_MODULE."""

    version = KUEUE_MODULE.version

    def __init__(self, **configuration: object) -> None:
        """`configuration`: fields beside those that it needs here."""
        self.built = operators(report_build, (KUEUE_MODULE,))
        self._components = self.built / "kueue" / "config" / "components"
        self._configuration = configuration
        self._port = 0

    def install(self, plane: ControlPlane) -> None:
        """Its definitions, without the conversion of their old version, and its webhooks."""
        (self._port,) = free_ports(1)
        crds = sorted((self._components / "crd" / "bases").glob("kueue.x-k8s.io_*.yaml"))
        create(plane, *(item for path in crds for item in documents(path)))
        create(plane, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        create(plane, *self.webhooks())

    @contextlib.contextmanager
    def running(self, plane: ControlPlane) -> Iterator[None]:
        CERTIFICATES.mkdir(parents=True, exist_ok=True)
        for file in (self.built / "webhook").iterdir():
            place_file(file, CERTIFICATES / file.name)
        (health,) = free_ports(1)
        place = plane.folder / "kueue.json"
        place.write_bytes(encode(self._whole_configuration(health)))
        with process(
            plane, [str(self.built / "bin" / "kueue"), f"--config={place}"], f"http://127.0.0.1:{health}/readyz"
        ):
            yield

    def _whole_configuration(self, health: int) -> Json:
        return {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "namespace": NAMESPACE,
            "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": "127.0.0.1", "port": self._port, "certDir": str(self.built / "webhook")},
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "clientConnection": {"qps": int(LIMITS[0]), "burst": int(LIMITS[1])},
            "featureGates": {"VisibilityOnDemand": False},  # its server needs a Service of the cluster
            "waitForPodsReady": {"timeout": "5m"},
            "integrations": {"frameworks": FRAMEWORKS},
            **self._configuration,
        }

    def webhooks(self) -> list[Json]:
        """Their configurations, for a webhook server at this port, but for Pods and StatefulSets of the system."""
        bundle = base64.b64encode((self.built / "webhook" / "ca.crt").read_bytes()).decode()
        configurations = documents(self._components / "webhook" / "manifests.yaml")
        for configuration in configurations:
            webhooks = [webhook for webhook in configuration["webhooks"] if _is_needed(webhook)]
            for webhook in webhooks:
                path = webhook["clientConfig"]["service"]["path"]
                url = f"https://127.0.0.1:{self._port}{path}"
                webhook["clientConfig"] = {"url": url, "caBundle": bundle}
                webhook["namespaceSelector"] = _outside("kube-system", NAMESPACE)
            configuration["webhooks"] = webhooks
            configuration["metadata"]["name"] = f"kueue-{configuration['metadata']['name']}"
        return configurations


def _is_needed(webhook: Json) -> bool:
    (rule,) = webhook["rules"]
    groups: Sequence[str] = rule["apiGroups"]
    return "kueue.x-k8s.io" in groups or bool(RESOURCES & set(rule["resources"]))


def _outside(*namespaces: str) -> Json:
    key = "kubernetes.io/metadata.name"
    return {"matchExpressions": [{"key": key, "operator": "NotIn", "values": list(namespaces)}]}


def queue_objects(namespace: str, queue: str, cpus: int, flavor: Json) -> list[Json]:
    """A ResourceFlavor with this spec, a ClusterQueue of so many CPUs named after the namespace, and a LocalQueue."""
    covered = {"name": f"{namespace}-flavor", "resources": [{"name": "cpu", "nominalQuota": str(cpus)}]}
    cluster_queue = {
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [covered]}],
        "preemption": {"withinClusterQueue": "LowerPriority"},
    }
    return [
        _object("ResourceFlavor", covered["name"], spec=flavor),
        _object("ClusterQueue", namespace, spec=cluster_queue),
        _object("LocalQueue", queue, namespace, spec={"clusterQueue": namespace}),
    ]


def _object(kind: str, name: object, namespace: str = "", **fields: object) -> Json:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, **fields}
