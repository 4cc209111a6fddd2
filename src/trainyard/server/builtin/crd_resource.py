"""apiextensions.k8s.io: CustomResourceDefinitions."""

from __future__ import annotations

from trainyard.server.builtin import columns
from trainyard.server.crd import definitions, validation
from trainyard.server.model.resources import Resource

RESOURCES = (
    Resource(
        group="apiextensions.k8s.io",
        kind="CustomResourceDefinition",
        plural="customresourcedefinitions",
        short=("crd", "crds"),
        categories=("api-extensions",),
        namespaced=False,
        contents="definition",
        status=True,
        generation=True,
        decode_new=definitions.decode_new,
        schema=definitions.SCHEMA,
        prepare=definitions.prepare,
        warnings=validation.warnings,
        check=validation.check,
        fields=definitions.fields,
        columns=columns.DEFINITION,
    ),
)
