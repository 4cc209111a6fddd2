"""What a local cluster vouches for is right: our own definitions, asked as those of a stranger are."""

from __future__ import annotations

import pytest

from trainyard import kinds
from trainyard.client import ApiClient
from trainyard.client.request import create
from trainyard.core import Kind
from trainyard.objects import Json, encode
from trainyard.objects.resources import CRD
from trainyard.objects.structs import replace
from trainyard.server import Server, trust_crd
from trainyard.server.crd import definitions, trusted_schemas
from trainyard.server.crd.validation import check, schema_problems


async def test_our_crds_have_only_fields_that_the_server_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trusted_schemas, "_trusted", set())  # schemas that are trusted are not decoded
    server = Server()
    await server.start()
    api = ApiClient(server.url)
    try:
        for kind in kinds.ALL:
            await api.send(replace(create(CRD, "", kinds.crd(kind)), query=(("fieldValidation", "Strict"),)))
    finally:
        await api.close()
        await server.stop()


def definition_of(kind: Kind) -> tuple[Json, Json]:
    """The definition as it is when it is examined, and its schema."""
    definition = kinds.crd(kind)
    definition["spec"]["conversion"] = {"strategy": "None"}
    return definition, definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


@pytest.mark.parametrize("kind", kinds.ALL, ids=lambda kind: f"{kind.gvk.plural}.{kind.gvk.group}")
def test_our_schemas_are_right(kind: Kind) -> None:
    _, schema = definition_of(kind)
    assert schema_problems(encode(schema), "schema") == ()
    schema["properties"]["spec"]["type"] = "no type"
    assert schema_problems(encode(schema), "schema") != ()


def test_a_crd_that_is_not_trusted_is_validated() -> None:
    definition, schema = definition_of(kinds.TFJOB)
    schema["properties"]["spec"]["type"] = "no type either"
    assert [problem.path for problem in check(definition, None)]
    trust_crd(definition)
    assert check(definition, None) == []


async def test_a_schema_is_decoded_for_the_first_object_of_its_kind() -> None:
    """A cluster serves all kinds, and most clusters have jobs of one: the schemas of the others stay JSON."""

    def decoded() -> set[str]:
        resources = (resource for resource in server.registry.all() if resource.definition and resource.schema)
        return {resource.full_name for resource in resources if "document" in vars(resource.schema)}

    definitions._compiled.cache_clear()  # other tests of this process have used these schemas
    server = Server()
    await server.start()
    api = ApiClient(server.url)
    try:
        for kind in (kinds.TFJOB, kinds.ELASTICJOB, kinds.MXJOB):
            trust_crd(kinds.crd(kind))
            await api.send(create(CRD, "", kinds.crd(kind)))
            await api.list(kind.gvk)
        assert decoded() == set()
        template = {"spec": {"restartPolicy": "OnFailure", "containers": [{"name": "tensorflow", "image": "x"}]}}
        meta = {"apiVersion": kinds.TFJOB.gvk.api_version, "kind": "TfJob", "metadata": {"name": "a"}}
        job = {**meta, "spec": {"replicaSpecs": [{"tfReplicaType": "MASTER", "template": template}]}}
        await api.create(kinds.TFJOB.gvk, "default", job)
        assert decoded() == {f"{kinds.TFJOB.gvk.plural}.{kinds.TFJOB.gvk.group}"}
    finally:
        await api.close()
        await server.stop()
