"""The real API server, with the definitions of Kubeflow Trainer 2.3.0, stores what `trainyard convert` writes: the
fields, and the rules (CEL) that the schemas alone do not check."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conversion.test_trainjob import SAMPLES
from tests.conversion.trainer_schemas import PLURALS, definition_text
from tests.support.control_plane import ControlPlane
from trainyard.conversion import TRAINJOB, convert
from trainyard.objects import Json

pytestmark = pytest.mark.cluster


@pytest.fixture
def with_trainer(control_plane: ControlPlane, tmp_path: Path) -> ControlPlane:
    for kind, plural in PLURALS.items():
        (tmp_path / f"{kind}.yaml").write_text(definition_text(kind))
        control_plane.kubectl("apply", "--server-side", "-f", str(tmp_path / f"{kind}.yaml"))
        name = f"crd/{plural}.trainer.kubeflow.org"
        control_plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", name)
    return control_plane


@pytest.mark.parametrize("obj", SAMPLES)
def test_converted_samples_are_stored_without_a_warning(with_trainer: ControlPlane, namespace: str, obj: Json) -> None:
    for result in convert(obj, TRAINJOB).objects:
        path = f"/apis/{result['apiVersion']}/namespaces/{namespace}/{PLURALS[result['kind']]}"
        code, answer = with_trainer.ask("POST", f"{path}?fieldValidation=Strict", result)
        assert code == 201, answer
