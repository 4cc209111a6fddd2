"""What docs/install.md promises of the chart: upgrade, rollback and uninstall leave jobs and what they run alone.

And what docs/readme-commands.md says of forms that are gone: they are.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.control_plane.readme_node import joined
from tests.control_plane.readme_story import Story
from tests.control_plane.readme_table import PAGE, rows
from tests.support.control_plane import ControlPlane
from tests.support.waiting import until
from tools.generate_manifests import ROOT
from trainyard.objects import Json, name_of, uid_of

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

CHART = str(ROOT / "charts" / "trainyard")
LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/trainyard-elasticjob-mxjob-tfjob"
JOBS = "/apis/tensorflow.org/v1alpha1/namespaces/default/tfjobs/example-job"
CHILDREN = ("/apis/batch/v1", "jobs"), ("/api/v1", "pods"), ("/api/v1", "services"), ("/api/v1", "configmaps")


def items(plane: ControlPlane, group: str, plural: str) -> list[Json]:
    objects: list[Json] = plane.ask("GET", f"{group}/namespaces/default/{plural}")[1]["items"]
    return objects


def running(plane: ControlPlane) -> dict[str, str]:
    """The job and all that it has, by uid, with the restarts of its pods."""
    kinds_by_uid = {uid_of(plane.ask("GET", JOBS)[1]): "TfJob"}
    for group, plural in CHILDREN:
        for obj in items(plane, group, plural):
            if obj["metadata"].get("ownerReferences") and "tf-job-operator" not in name_of(obj):
                counts = [
                    container_status["restartCount"]
                    for container_status in obj.get("status", {}).get("containerStatuses") or []
                ]
                kinds_by_uid[uid_of(obj)] = f"{plural} {name_of(obj)} {counts}"
    return kinds_by_uid


def leads(plane: ControlPlane, before: str) -> bool:
    """Whether another operator than that one has taken the lease, and with it all jobs."""
    return holder(plane) not in ("", before)


def holder(plane: ControlPlane) -> str:
    lease = plane.ask("GET", LEASE)[1]
    return str((lease.get("spec") or {}).get("holderIdentity") or "")


def helm(plane: ControlPlane, *arguments: str) -> None:
    completed = plane.run("helm", *arguments, "--wait")
    assert completed.returncode == 0, completed.stderr


def test_a_running_job_stays_through_upgrade_rollback_and_uninstall(tmp_path: Path) -> None:
    with ControlPlane() as plane, joined(plane, tmp_path / "node"):
        story = Story(plane, tmp_path)
        helm(plane, "install", "tf-job", CHART, "--set", "cloud=gke")
        plane.kubectl("create", "-f", str(ROOT / "examples" / "tf_job.yaml"))
        until(lambda: plane.ask("GET", JOBS)[1].get("status", {}).get("phase") == "Running", "the job runs")
        until(lambda: [pod["status"]["phase"] for pod in story.pods("*-[01]-*")] == ["Running"] * 4, "its pods run")
        before, first = running(plane), holder(plane)
        assert len(before) == 1 + 4 + 4 + 1 + 1

        for arguments in (("upgrade", "tf-job", CHART, "--set", "cloud=azure"), ("rollback", "tf-job", "1")):
            helm(plane, *arguments)
            until(partial(leads, plane, first), f"another operator leads after {arguments[0]}")
            assert running(plane) == before
            first = holder(plane)

        helm(plane, "uninstall", "tf-job")
        assert running(plane) == before
        assert "tfjobs.tensorflow.org" in plane.kubectl("get", "crd")
        assert items(plane, "/apis/apps/v1", "deployments") == []

        helm(plane, "install", "tf-job", CHART, "--set", "cloud=gke")
        story.end_pods("1", "master-*", "0")
        until(lambda: plane.ask("GET", JOBS)[1]["status"].get("state") == "Succeeded", "the job succeeds")
        assert set(running(plane)) == set(before)


@pytest.mark.parametrize("line", [row.line for row in rows(PAGE.read_text()) if row.why.startswith("Helm 2")])
def test_helm_does_not_take_the_form_of_the_readme_any_more(control_plane: ControlPlane, line: str) -> None:
    (row,) = (
        candidate for candidate in rows(PAGE.read_text()) if (candidate.readme, candidate.line) == ("TfJob", line)
    )
    printed = row.printed.replace("${CHART}", CHART).replace("<gke or azure>", "gke")
    completed = control_plane.run(*printed.split())
    assert completed.returncode != 0 and "must either provide a name" in completed.stderr


def test_the_old_proxy_path_leads_nowhere(installed: ControlPlane) -> None:
    completed = installed.run("kubectl", "get", "--raw", "/api/v1/proxy/namespaces/default/services/kubernetes:443/")
    assert completed.returncode != 0 and "NotFound" in completed.stderr
    now = installed.run("kubectl", "get", "--raw", "/api/v1/namespaces/default/services/kubernetes:443/proxy/")
    assert "no endpoints available for service" in now.stderr
