"""Without a CEL engine a CRD with rules is accepted with a warning; with one there is no warning."""

from __future__ import annotations

import pytest

from tests.server.server_clients import CRDS, THINGS, Cluster, crd, custom_object
from trainyard.objects import Json, encode
from trainyard.server import trust_crd
from trainyard.server.crd import cel
from trainyard.server.http.requests import Response


def ruled() -> Json:
    definition = crd()
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["x-kubernetes-validations"] = [{"rule": "self.replicas > 1", "message": "too few"}]
    return definition


def lose_the_engine() -> None:
    raise cel.EngineMissing("rules need an engine")


def posted(cluster: Cluster, definition: Json) -> Response:
    answer = cluster.raw("POST", CRDS, encode(definition), "application/json")
    assert isinstance(answer, Response) and answer.code == 201
    return answer


def test_without_a_cel_engine_rules_are_not_checked_and_one_warning_says_so(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cel.compile_expression.cache_clear()
    cel._environment.cache_clear()
    monkeypatch.setattr(cel, "_engine", lose_the_engine)
    (warning,) = posted(cluster, ruled()).warnings
    assert "things.example.org" in warning and "are not checked" in warning and "trainyard[local]" in warning
    assert warning in caplog.text
    assert cluster.make(THINGS, custom_object("a"))["spec"]["replicas"] == 1


def test_without_rules_there_is_no_warning(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cel, "_engine", lose_the_engine)
    assert posted(cluster, crd()).warnings == ()


def test_a_trusted_definition_needs_no_engine(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kind has Python checks in place of the rules: the engine is not loaded for our own kinds."""
    monkeypatch.setattr(cel, "_engine", lose_the_engine)
    trusted = ruled()
    trusted["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = "Trusted by this test alone."
    trust_crd(trusted)
    assert posted(cluster, trusted).warnings == ()


def test_with_the_cel_engine_rules_are_checked(cluster: Cluster) -> None:
    assert posted(cluster, ruled()).warnings == ()
    assert "too few" in cluster.refused("POST", THINGS, custom_object("a")).message
    assert cluster.make(THINGS, custom_object("a", replicas=2))
