"""apiextensions.k8s.io: CustomResourceDefinitions."""

from __future__ import annotations

from trainyard.server import definitions, examining
from trainyard.server.resources import Resource
from trainyard.server.strategies import cells

RESOURCES = (
    Resource(
        group="apiextensions.k8s.io",
        kind="CustomResourceDefinition",
        plural="customresourcedefinitions",
        short=("crd", "crds"),
        categories=("api-extensions",),
        namespaced=False,
        status=True,
        generation=True,
        schema=definitions.SCHEMA,
        prepare=definitions.prepare,
        admit=definitions.admit,
        check=examining.check,
        fields=definitions.fields,
        columns=cells.DEFINITION,
    ),
)
