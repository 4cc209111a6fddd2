"""JobSet, the operator of Kubernetes' batch working group: built once per machine, and run beside a control plane.

Its pods are made by the Job controller of kube-controller-manager, so its figures are those of both programs. Its
webhooks, two of which see every pod, are called by URL on loopback.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator

from tests.drop_in.operators import LIMITS, create, documents, process, report_build
from tests.drop_in.operators_build import JOB_SET_MODULE, operators
from tests.drop_in.snapshot import JOB_SET
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_process import ControlPlaneProcess, free_ports
from trainyard.objects import Json, encode

POD_LABEL = "jobset.sigs.k8s.io/jobset-name"
"""The label by which its webhooks select pods."""
NAMESPACE = "jobset-system"


class JobSet:
    """JobSet's controller with its webhooks and raised limits."""

    job_kinds = (JOB_SET,)

    def __init__(self) -> None:
        self.built = operators(report_build, (JOB_SET_MODULE,))
        self._components = self.built / "jobset" / "config" / "components"
        self._port = 0

    def install(self, plane: ControlPlane) -> None:
        (self._port,) = free_ports(1)
        create(plane, *documents(self._components / "crd" / "bases" / "jobset.x-k8s.io_jobsets.yaml"))
        create(plane, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        create(plane, *self.webhooks(self._port))

    @contextlib.contextmanager
    def running(self, plane: ControlPlane, gang: str = "") -> Iterator[ControlPlaneProcess]:
        assert not gang, "JobSet has no gang scheduler"
        command, urls = self.command(plane, self._port)
        with process(plane, command, *urls) as operator:
            yield operator

    def command(self, plane: ControlPlane, port: int, *flags: str) -> tuple[list[str], list[str]]:
        """The command that serves the webhooks at this port, and the URLs that answer when it works."""
        (health,) = free_ports(1)
        config = {
            "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
            "kind": "Configuration",
            "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(self.built / "webhook")},
            "internalCertManagement": {"enable": False},
            "leaderElection": {"leaderElect": False, "resourceNamespace": NAMESPACE},
            "metrics": {"bindAddress": "0"},
            "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        }
        place = plane.folder / f"jobset-{port}.json"
        place.write_bytes(encode(config))
        limits = [f"--kube-api-qps={LIMITS[0]}", f"--kube-api-burst={LIMITS[1]}"]
        command = [str(self.built / "bin" / "jobset"), f"--config={place}", *limits, *flags]
        urls = [webhook["clientConfig"]["url"] for item in self.webhooks(port) for webhook in item["webhooks"]]
        return command, [f"http://127.0.0.1:{health}/readyz", *urls]

    def webhooks(self, port: int) -> list[Json]:
        """Their configurations, for a webhook server at this port, with the selector of pods that JobSet's
        kustomization adds."""
        bundle = base64.b64encode((self.built / "webhook" / "ca.crt").read_bytes()).decode()
        configurations = documents(self._components / "webhook" / "manifests.yaml")
        for webhook in (webhook for item in configurations for webhook in item["webhooks"]):
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": bundle}
            if path.endswith("-pod"):
                webhook["objectSelector"] = {"matchExpressions": [{"key": POD_LABEL, "operator": "Exists"}]}
        return configurations
