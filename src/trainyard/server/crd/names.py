"""Name conflicts of CRDs: two CRDs of one group cannot share a plural, a kind or a short name.

kube-apiserver accepts both CRDs and sets the condition NamesAccepted of the later one to False; it is not served until
the names are free.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from trainyard.objects import Json, find_condition, set_condition
from trainyard.server.model.context import RequestContext
from trainyard.server.model.resources import DEFINITIONS


class _Status(msgspec.Struct):
    acceptedNames: Json | None = None


class _Definition(msgspec.Struct):
    """A CRD, as far as it is read here."""

    status: _Status | None = None


_definition_decoder = msgspec.json.Decoder(_Definition)


def names_status(crd: Json, context: RequestContext) -> Json:
    """`conditions` and `acceptedNames` of a CRD's status."""
    status = crd.get("status") or {}
    conditions = [
        condition_entry for condition_entry in status.get("conditions") or () if isinstance(condition_entry, dict)
    ]
    names, accepted = crd["spec"]["names"], dict(crd["spec"]["names"])
    taken = list(_taken(crd, context))
    for _, field, _ in taken:
        accepted.pop(field, None)
    if taken:
        reason, _, text = taken[-1]
        conditions = _with_condition(conditions, "NamesAccepted", False, (reason, text), context)
        if find_condition(conditions, "Established") is None:
            reason_and_message = ("NotAccepted", "not all names are accepted")
            conditions = _with_condition(conditions, "Established", False, reason_and_message, context)
    else:
        conditions = _with_condition(conditions, "NamesAccepted", True, ("NoConflicts", "no conflicts found"), context)
        reason_and_message = ("InitialNamesAccepted", "the initial names have been accepted")
        conditions = _with_condition(conditions, "Established", True, reason_and_message, context)
    return {"conditions": conditions, "acceptedNames": accepted if taken else names}


def _with_condition(
    conditions: list[Json], kind: str, value: bool, reason_and_message: tuple[str, str], context: RequestContext
) -> list[Json]:
    current = find_condition(conditions, kind)
    if current is not None and current.get("status") == str(value):
        return conditions
    return set_condition(conditions, kind, value, *reason_and_message, context.now)


def is_not_established(status: Json) -> bool:
    """Whether the condition Established of a CRD is False: it is not served."""
    established = find_condition(status.get("conditions"), "Established")
    return established is not None and established.get("status") == "False"


def _taken(crd: Json, context: RequestContext) -> Iterator[tuple[str, str, str]]:
    """(reason, field of spec.names, message) for each name that another CRD of the group has."""
    group, names = crd["spec"]["group"], crd["spec"]["names"]
    words: set[str] = set()
    kinds: set[str] = set()
    for key, record in context.log.list(DEFINITIONS):
        # A CRD is named PLURAL.GROUP. CRDs are large, so those of other groups are not decoded, and of this group only
        # the status is.
        if key.name.partition(".")[2] != group or key.name == crd["metadata"].get("name"):
            continue
        status = _definition_decoder.decode(record.body).status
        accepted_names: Json = (status and status.acceptedNames) or {}
        words.update(accepted_names[field] for field in ("plural", "singular") if field in accepted_names)
        words.update(accepted_names.get("shortNames") or ())
        kinds.update(accepted_names[field] for field in ("kind", "listKind") if field in accepted_names)
    for reason, field, in_use in (
        ("PluralConflict", "plural", words),
        ("SingularConflict", "singular", words),
        ("ShortNamesConflict", "shortNames", words),
        ("KindConflict", "kind", kinds),
        ("ListKindConflict", "listKind", kinds),
    ):
        values = names.get(field) or ()
        for name in [values] if isinstance(values, str) else values:
            if name in in_use:
                yield reason, field, f'"{name}" is already in use'
