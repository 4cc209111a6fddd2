"""The definitions, and one life of each kind, on a control plane that behaves as Kubernetes 1.34 does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.control_plane.job_life import children, operated, path_of, succeeds
from tests.control_plane.test_definitions_on_a_real_server import wire
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_fixtures import create_namespace, install
from tests.support.control_plane_flags import Options
from tests.support.samples import ALL_WITH_TEMPLATES, sample
from trainyard import kinds
from trainyard.core import Kind

pytestmark = pytest.mark.cluster
OLDER = "1.34"

every_kind = pytest.mark.parametrize("kind", ALL_WITH_TEMPLATES, ids=lambda kind: f"{kind.gvk.kind}.{kind.gvk.group}")


@pytest.fixture(scope="module")
def older() -> Iterator[ControlPlane]:
    with ControlPlane(Options(emulated=OLDER)) as plane:
        assert plane.ask("GET", "/version")[1]["emulationMinor"] == OLDER.partition(".")[2]
        lines = install(plane).splitlines()
        assert len(lines) == len(kinds.ALL) and all(line.endswith(" created") for line in lines), lines
        plane.add_node("played")
        yield plane


@every_kind
async def test_a_job_runs_from_its_creation_to_its_success(older: ControlPlane, kind: Kind) -> None:
    namespace = f"{kind.gvk.plural}-{kind.gvk.group.replace('.', '-')}"
    create_namespace(older, namespace)
    job = wire(kind, sample(kind.gvk.kind))
    code, answer = older.ask("POST", path_of(kind, namespace), job)
    assert code == 201, answer
    async with operated(older):
        ended = await succeeds(older, kind, namespace, job["metadata"]["name"])
    made_of = set(children(older, namespace, ended))
    assert made_of and made_of <= {gvk.kind for gvk in kind.roles.child_resources}
    assert ended["status"]["completionTime"]
    older.ask("DELETE", f"/api/v1/namespaces/{namespace}")


@every_kind
def test_a_wrong_job_is_refused_with_its_path(older: ControlPlane, kind: Kind) -> None:
    job = wire(kind, sample(kind.gvk.kind))
    code, answer = older.ask("POST", path_of(kind, "default"), {**job, "metadata": {"name": "x" * 64}})
    assert code == 422, answer
    fields = [cause["field"] for cause in answer["details"]["causes"]]
    assert set(fields) == {"metadata.name"}
