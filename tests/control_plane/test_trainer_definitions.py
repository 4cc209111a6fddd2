"""The real API server, with the definitions of Kubeflow Trainer 2.3.0, stores what `trainyard convert` writes: the
fields, and the rules (CEL) that the schemas alone do not check."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conversion.test_trainjob import SAMPLES
from tests.conversion.trainer_schemas import PLURALS, definition_text
from tests.support.control_plane import ControlPlane
from tests.support.waiting import SLOW_PAUSE, until
from trainyard.conversion import TRAINJOB, convert
from trainyard.objects import Json, is_condition_true

pytestmark = pytest.mark.cluster


@pytest.fixture
def with_trainer(control_plane: ControlPlane, tmp_path: Path) -> ControlPlane:
    for kind, plural in PLURALS.items():
        (tmp_path / f"{kind}.yaml").write_text(definition_text(kind))
        control_plane.kubectl("apply", "--server-side", "-f", str(tmp_path / f"{kind}.yaml"))
        wait_until_served(control_plane, f"{plural}.trainer.kubeflow.org")
    return control_plane


def wait_until_served(plane: ControlPlane, name: str) -> None:
    """`kubectl wait` fails for a definition that has no conditions yet."""
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
    until(
        lambda: plane.ask("GET", path)[1],
        f"{name} is served",
        accept=lambda obj: is_condition_true((obj.get("status") or {}).get("conditions"), "Established"),
        pause=SLOW_PAUSE,
    )


@pytest.mark.parametrize("obj", SAMPLES)
def test_converted_samples_are_stored_without_a_warning(with_trainer: ControlPlane, namespace: str, obj: Json) -> None:
    for result in convert(obj, TRAINJOB).objects:
        path = f"/apis/{result['apiVersion']}/namespaces/{namespace}/{PLURALS[result['kind']]}"
        code, answer = with_trainer.ask("POST", f"{path}?fieldValidation=Strict", result)
        assert code == 201, answer
