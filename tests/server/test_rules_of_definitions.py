"""The validation rules (CEL) of other people's definitions are not checked here, and one warning says so."""

from __future__ import annotations

import pytest

from tests.server.server_clients import CRDS, THINGS, Cluster, crd, custom_object
from trainyard.objects import Json, encode
from trainyard.server import trust_crd
from trainyard.server.model.requests import Response


def definition_with_a_rule() -> Json:
    definition = crd()
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["x-kubernetes-validations"] = [{"rule": "self.replicas > 1", "message": "too few"}]
    return definition


def warnings_of_create(cluster: Cluster, definition: Json) -> tuple[str, ...]:
    response = cluster.raw("POST", CRDS, encode(definition), "application/json")
    assert isinstance(response, Response) and response.code == 201
    return response.warnings


def test_rules_are_not_checked_and_one_warning_says_so(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    (warning,) = warnings_of_create(cluster, definition_with_a_rule())
    assert warning == "things.example.org: its rules (x-kubernetes-validations) are not checked here"
    assert warning in caplog.text
    assert cluster.make(THINGS, custom_object("a", replicas=1))["spec"]["replicas"] == 1


def test_without_rules_there_is_no_warning(cluster: Cluster) -> None:
    assert warnings_of_create(cluster, crd()) == ()


def test_a_trusted_definition_has_no_warning(cluster: Cluster) -> None:
    """Its kind has Python checks in place of the rules."""
    trusted = definition_with_a_rule()
    trusted["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = "Trusted by this test alone."
    trust_crd(trusted)
    assert warnings_of_create(cluster, trusted) == ()
