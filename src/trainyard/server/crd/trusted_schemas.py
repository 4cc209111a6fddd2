"""Schemas that are known to be valid: those of the kinds of Trainyard, which a test has examined.

They are neither examined nor, when a definition is created, decoded. The definitions of all kinds are 1 MB, nearly all
of it the types below a PodSpec: to decode them and to walk through them took a fourteenth of the start of a cluster.
"""

from __future__ import annotations

from trainyard.objects import Json, encode

_trusted: set[bytes] = set()


def trust_crd(definition: Json) -> None:
    """Trust the schemas of a CustomResourceDefinition. The server of such a CRD must have Python checks in place of its
    rules."""
    _trusted.update(encode(version["schema"]["openAPIV3Schema"]) for version in definition["spec"]["versions"])


def is_trusted(encoded: bytes) -> bool:
    """Whether this schema, as compact JSON, is trusted."""
    return encoded in _trusted
