"""Fields that are fixed once a job has started: the rules that refuse an edit which the operator would ignore (S11)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from trainyard.core import Kind, Rule, TemplateChange
from trainyard.kinds.policies import Policies
from trainyard.objects import Json

IS_FIXED_CEL = (
    "has(oldSelf.status) && has(oldSelf.status.roles) && !(has(oldSelf.spec.suspend) && oldSelf.spec.suspend)"
    " && !(has(self.spec.suspend) && self.spec.suspend)"
)


def is_immutable(new: Json, old: Json) -> bool:
    """Whether an update must not change the replicas: the job has started and neither object is suspended (S11).

    Kueue suspends a job and restores its templates in one update, and resumes it and changes them in one.
    """
    is_suspended = any(job["spec"].get("suspend") is True for job in (new, old))
    return bool((old.get("status") or {}).get("roles")) and not is_suspended


def rules_of(kind: Kind) -> tuple[Rule, ...]:
    """All rules of the kind: those of its spec, then those that fix fields after the start."""
    return kind.api.rules + rules_after_start(kind)


def rules_after_start(kind: Kind) -> tuple[Rule, ...]:
    """Api.rules_after_start. Unset, they follow from Lifecycle.template_change: if the operator ignores edits of the
    roles, every field of the spec that is no policy is fixed.

    Raises ValueError when only some roles are fixed: then the kind itself must say which fields these are.
    """
    if kind.api.rules_after_start is not None:
        return kind.api.rules_after_start
    if kind.lifecycle.template_change is TemplateChange.IGNORE:
        policies = {field.encode_name for field in msgspec.structs.fields(Policies)}
        fields = [field.encode_name for field in msgspec.structs.fields(kind.api.spec_type)]
        return tuple(_fixed_field(field) for field in fields if field not in policies)
    if TemplateChange.IGNORE in kind.lifecycle.template_change_of.values():
        raise ValueError(f"{kind.gvk.kind}: edits of some roles are ignored; set Api.rules_after_start")
    return ()


def _fixed_field(field: str) -> Rule:
    new, old = f"self.spec.{field}", f"oldSelf.spec.{field}"
    return Rule(
        "",
        f"!({IS_FIXED_CEL}) || (has({new}) == has({old}) && (!has({new}) || {new} == {old}))",
        _is_unchanged(field),
        f"{field} is fixed once the job has started: suspend it and edit it then, or make a new job",
        transition=True,
        field=f"spec.{field}",
    )


def _is_unchanged(field: str) -> Callable[[Any, Any], bool]:
    def check(new: Any, old: Any) -> bool:
        same = (field in new["spec"]) == (field in old["spec"]) and new["spec"].get(field) == old["spec"].get(field)
        return not is_immutable(new, old) or same

    return check
