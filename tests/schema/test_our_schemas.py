from __future__ import annotations

import pytest

from trainyard import kinds
from trainyard.core import Kind
from trainyard.schema.schema_validity import check_schema
from trainyard.server.builtin import BUILT_IN
from trainyard.server.model.resources import Resource


@pytest.mark.parametrize("resource", [gvk for gvk in BUILT_IN if gvk.schema], ids=lambda gvk_: gvk_.full_name)
def test_the_schema_of_a_built_in_resource_is_structural(resource: Resource) -> None:
    assert resource.schema is not None
    check_schema(resource.schema.document)


@pytest.mark.parametrize("kind", kinds.KINDS, ids=lambda kind: kind.gvk.kind)
def test_the_schema_of_a_kind_is_structural(kind: Kind) -> None:
    for version in kinds.crd(kind)["spec"]["versions"]:
        check_schema(version["schema"]["openAPIV3Schema"])
