"""PersistentVolumeClaims: defaults and validation. Nothing provisions volumes here: a claim is a folder of the node."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.api_types.defaults import set_defaults
from trainyard.api_types.validators import selector_problems, validate_enum, validate_name
from trainyard.objects import Json, Problem
from trainyard.objects.json_equal import json_equal
from trainyard.objects.quantities import number
from trainyard.schema.checks import json_text
from trainyard.server.model.context import RequestContext

MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")


def prepare_claim(new: Json, old: Json | None, context: RequestContext) -> None:
    """The defaults of a PersistentVolumeClaim."""
    set_defaults(new, spec={})
    set_defaults(new["spec"], volumeMode="Filesystem")
    if old is None:
        new["status"] = {"phase": "Pending"}


def check_claim(new: Json, old: Json | None) -> list[Problem]:
    """The problems of a PersistentVolumeClaim; its spec is immutable except for the requested size."""
    problems = list(claim_problems(new))
    if old is not None and not json_equal(*(_immutable_fields(claim["spec"], old) for claim in (new, old))):
        text = "is immutable after creation except resources.requests for bound claims"
        problems.append(Problem("spec", f"Forbidden: spec {text}"))
    return problems


def claim_problems(claim: Json) -> Iterator[Problem]:
    """The problems of a claim's spec, also of one in volumeClaimTemplates."""
    spec = claim["spec"]
    if not (modes := spec.get("accessModes") or []):
        yield Problem("spec.accessModes", "Required value: at least 1 access mode is required")
    for mode in modes:
        yield from validate_enum(mode, MODES, "spec.accessModes")
    if "ReadWriteOncePod" in modes and len({*modes} & {*MODES}) > 1:
        yield Problem("spec.accessModes", "Forbidden: may not use ReadWriteOncePod with other access modes")
    yield from selector_problems(spec.get("selector") or {}, "spec.selector")
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if size is None:
        yield Problem("spec.resources[storage]", "Required value")
    elif number(str(size)) <= 0:
        yield Problem("spec.resources[storage]", f"Invalid value: {json_text(size)}: must be greater than zero")
    yield from validate_name(spec.get("storageClassName") or "", "spec.storageClassName", "subdomain")


def _immutable_fields(spec: Json, old: Json) -> Json:
    """The fields that an update of `old` cannot change. volumeName and storageClassName can be set once."""
    mutable = [name for name in ("volumeName", "storageClassName") if not old["spec"].get(name)]
    fields = {name: value for name, value in spec.items() if name not in mutable}
    if (old.get("status") or {}).get("phase") == "Bound" and (resources := fields.get("resources")):
        fields["resources"] = {name: value for name, value in resources.items() if name != "requests"}
    return fields
