"""The real API server stores our definitions of TrainJob and of its runtimes, and refuses by their schemas and rules
what it refuses by Trainer's, in the same words."""

from __future__ import annotations

import pytest

from tests.control_plane.test_trainer_definitions import wait_until_served
from tests.drop_in.recordings import FOLDER, Recording, load
from tests.drop_in.scenarios_trainjob import API, TRAIN_JOBS
from tests.support.control_plane import ControlPlane
from tests.support.waiting import SLOW_PAUSE, until
from trainyard.kinds.trainjob.definitions import definitions
from trainyard.objects import encode

pytestmark = pytest.mark.cluster

STRICTER = {"nodes-negative", "processes-zero"}
"""Jobs that Trainer 2.3 stores, and its next version refuses."""
PLURALS = {TRAIN_JOBS: "trainjobs", "trainingruntime": "trainingruntimes"}


def ask(plane: ControlPlane, namespace: str, recorded: Recording) -> tuple[int, str]:
    """The answer to its manifest; nothing is stored."""
    path = f"/apis/{API}/namespaces/{namespace}/{PLURALS[recorded.kind]}?dryRun=All"
    code, answer = plane.ask("POST", path, recorded.manifest)
    return code, str(answer.get("message", ""))


def test_jobs_and_runtimes_are_admitted_as_by_trainers_definitions(control_plane: ControlPlane, namespace: str) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": definitions()}
    # Another test may have put Trainer's own definitions into this control plane.
    arguments = ("apply", "--server-side", "--force-conflicts", "-f", "-")
    control_plane.kubectl(*arguments, stdin=encode(listed).decode())
    for definition in definitions():
        wait_until_served(control_plane, definition["metadata"]["name"])
    recordings = [load(path) for kind in PLURALS for path in sorted((FOLDER / kind).glob("*.json"))]
    by_name = {recorded.scenario.partition("/")[2]: recorded for recorded in recordings}
    for name in STRICTER:
        until(
            lambda name=name: ask(control_plane, namespace, by_name[name])[0],
            f"{name} is refused by our definition",
            accept=lambda code: code == 422,
            pause=SLOW_PAUSE,
        )
    for name in by_name.keys() - STRICTER:
        refused = by_name[name].steps[0].get("refused") or {"message": ""}
        by_webhook = refused["message"].startswith("admission webhook")
        expected = (422, refused["message"]) if refused["message"] and not by_webhook else (201, "")
        assert ask(control_plane, namespace, by_name[name]) == expected, name
