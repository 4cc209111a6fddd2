"""What it means that the name of a child to create is taken: the job's own object, one to adopt, or a conflict."""

from __future__ import annotations

from trainyard.core import PlannedCreate
from trainyard.core.status import parse_status
from trainyard.objects import Json, Ref, controller_of, find_condition, is_deleting, labels_of, operator_status
from trainyard.objects.labels import OWNER
from trainyard.operator.reconcile import ReconcileContext


def can_adopt(reconcile: ReconcileContext, planned: PlannedCreate, existing: Json) -> bool:
    """Whether the job already controls an existing object that lacks Trainyard's label (RoleTable.adopted_resources).
    Its owner reference proves whose it is."""
    owner = controller_of(existing) or {}
    adopts = planned.gvk in reconcile.kind.roles.adopted_resources
    return (
        adopts and owner.get("uid") == reconcile.uid and OWNER not in labels_of(existing) and not is_deleting(existing)
    )


def was_planned_before(reconcile: ReconcileContext, ref: Ref) -> bool:
    """Whether an existing object that the operator may not read is the job's own: an earlier reconcile has started the
    job, so that it may have created the object, and the status, this plan's included, does not report the name as
    taken."""
    started = parse_status(reconcile.kind, reconcile.job).started
    conflict = (
        find_condition(operator_status({"status": reconcile.plan.status}).get("conditions") or [], "NameConflict") or {}
    )
    return started and not (conflict.get("status") == "True" and ref.name in str(conflict.get("message")))


def why_not_owned(reconcile: ReconcileContext, existing: Json | None) -> str:
    """The reason why an existing object with a child's name is not a child of this job."""
    if existing is None:
        return "was there before this job: delete or rename it, or give this job another name"
    owner = controller_of(existing)
    if owner is not None and owner.get("uid") == reconcile.uid:  # the watches of children select by the label
        return f"has no label {OWNER} with this job's uid, so it is not watched: delete it, or give it the label"
    owner_name = f"{owner.get('kind')} {owner.get('name')}" if owner else "nobody"
    if is_deleting(existing):
        return f"belongs to {owner_name}, not to this job; it is being deleted, and the operator waits for that"
    name_field = "RuntimeId" if reconcile.kind.api.has_runtime_id else "name"
    return f"belongs to {owner_name}, not to this job: delete or rename it, or give this job another {name_field}"
