"""apiextensions.k8s.io: the resource that makes resources."""

from __future__ import annotations

from trainyard.server import definitions, examining
from trainyard.server.resources import Column, Resource
from trainyard.server.tables import NAME

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
        columns=(NAME, Column("Created At", lambda obj, now: obj["metadata"].get("creationTimestamp"))),
    ),
)
