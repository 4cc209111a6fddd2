"""The cluster state from files: jobs and their observed children, as `trainyard plan` reads, plans and prints them.
Pure.

It calls the same `plan` function as the operator, with objects from files instead of a cluster's caches (docs: the
interface of `plan`).
"""

from __future__ import annotations

import uuid
from itertools import count

import msgspec

from trainyard import core, kinds
from trainyard.core import Child, Config, Job, Kind, Observed, Plan, Refusal
from trainyard.objects import (
    Json,
    Ref,
    controller_of,
    format_time,
    key_of,
    name_of,
    namespace_of,
    resource_version_of,
    uid_of,
)
from trainyard.objects.structs import replace
from trainyard.objects.writes import Patch

NO_UID = "00000000-0000-4000-8000-000000000000"
"""The uid of a job without a uid, so that the same file always gives the same plan. The uid of the second such job of
the input ends in 1, and so on: the jobs' children must be distinguishable."""


class OfflineCluster(msgspec.Struct):
    """All objects of the input. `jobs`: the jobs to plan for; `other_objects`: all other objects, in the input's
    order."""

    jobs: list[tuple[Json, Kind]]
    other_objects: list[Json]
    config: Config
    now: float
    ids: dict[str, set[str]] = msgspec.field(default_factory=dict)  # RuntimeIds by namespace

    def __post_init__(self) -> None:
        taken = {uid_of(job) for job, _ in self.jobs}
        free = (uid for number in count() if (uid := f"{NO_UID[:-12]}{number:012}") not in taken)
        self.jobs = [(job if uid_of(job) else _with_uid(job, next(free)), kind) for job, kind in self.jobs]
        self.jobs = [(_with_namespace(_with_name(job, index)), kind) for index, (job, kind) in enumerate(self.jobs)]
        self.other_objects = [_with_namespace(obj) for obj in self.other_objects]
        for job, _ in self.jobs:
            if runtime_id := core.runtime_id_of(job):
                self.ids.setdefault(namespace_of(job), set()).add(runtime_id)

    def plan(self, job: Json, kind: Kind) -> Plan:
        """The operator's plan for one job of this world."""
        own_id = core.runtime_id_of(job)
        used = self.ids.setdefault(namespace_of(job), set())
        in_use = frozenset(used - {own_id})
        source = self._template_source(job, kind)
        parsed_job = core.parse_job(kind, job, self.config, in_use, source)
        used.add(parsed_job.runtime_id)
        observed = replace(self._observe(job, parsed_job, in_use), template_source=source)
        return core.plan(kind, job, observed, self.now)

    def _template_source(self, job: Json, kind: Kind) -> Json | None:
        """The object that has the job's templates (Kind.template_source), of the input or of those that one machine has
        from the start; None without one."""
        reference = kind.template_source.reference(job) if kind.template_source else None
        if reference is None:
            return None
        template_kind, key = reference
        shipped = [obj for _, obj in kinds.shipped_objects(kind)]
        named = (
            obj
            for obj in (*self.other_objects, *shipped)
            if (obj.get("kind"), name_of(obj)) == (template_kind.gvk.kind, key.name)
            and (not template_kind.namespaced or namespace_of(obj) == key.namespace)
        )
        return next(named, None)

    def _observe(self, job: Json, parsed_job: Job, in_use: frozenset[str]) -> Observed:
        children, refused = [], {}
        owned_uids = self._owned_uids(job)
        slots = {
            Ref(parsed_job.carrier(slot.role).gvk.kind, parsed_job.kind.pods.name(parsed_job, slot)): slot
            for slot in parsed_job.slots()
        }
        for obj in self.other_objects:
            if namespace_of(obj) != namespace_of(job):
                continue
            if uid_of(obj) in owned_uids:
                child = parse_child(obj)
                slot = slots.get(child.ref) if child.index < 0 else None
                # A handwritten child may lack Trainyard's labels: then its owner and its name determine its slot.
                children.append(replace(child, role=slot.role, index=slot.index) if slot else child)
            else:
                ref = Ref(str(obj.get("kind")), name_of(obj))
                refused[ref] = Refusal(409, "AlreadyExists", _conflict_text(obj), self.now)
        return Observed(tuple(children), in_use, refused, self.config)

    def _owned_uids(self, job: Json) -> set[str]:
        """The uids of the job's children and of their children."""
        owners = {uid_of(obj): (controller_of(obj) or {}).get("uid") for obj in self.other_objects if uid_of(obj)}
        uids = {uid_of(job)}
        while added := {uid for uid, owner in owners.items() if owner in uids and uid not in uids}:
            uids |= added
        return uids - {uid_of(job)}

    def spec(self, job: Json, kind: Kind) -> Json:
        """The spec of the job with all defaults, as the operator would store it."""
        own_id = core.runtime_id_of(job)
        in_use = self.ids.get(namespace_of(job), set()) - {own_id}
        return core.parse_job(kind, job, self.config, in_use).parsed.spec


def parse_child(obj: Json) -> Child:
    """The record of one object of the input. Raises ValueError when it does not have an object's shape."""
    return core.decode_child(obj, str(obj.get("kind")))


def _with_uid(job: Json, uid: str) -> Json:
    return {**job, "metadata": {**(job.get("metadata") or {}), "uid": uid}}


def _with_name(job: Json, index: int) -> Json:
    """The job with a name. An API server adds five random characters to `generateName`, the plan adds the job's index
    in the input: the same file always gives the same plan."""
    if name_of(job):
        return job
    prefix = job["metadata"].get("generateName", "")[:58]  # a generated name has 63 characters at most
    return {**job, "metadata": {**job["metadata"], "name": f"{prefix}{index:05}"}}


def _with_namespace(obj: Json) -> Json:
    meta = obj.get("metadata")
    meta = meta if isinstance(meta, dict) else {}
    return {**obj, "metadata": {**meta, "namespace": meta.get("namespace") or "default"}}


def _conflict_text(obj: Json) -> str:
    owner = controller_of(obj)
    owner_text = f"belongs to {owner.get('kind')} {owner.get('name')}" if owner else "has no owner"
    return f"an object of that name exists that is not this job's ({owner_text}); delete or rename it"


def is_stored(job: Json) -> bool:
    """True for a job from an API server (with a resourceVersion or a status): the plan then reports its problems."""
    return bool(resource_version_of(job)) or isinstance(job.get("status"), dict)


def plan_as_json(world: OfflineCluster, job: Json, kind: Kind) -> Json:
    """One job's plan as JSON, in the documented shape of the interface of `plan`."""
    spec = world.spec(job, kind)
    plan = world.plan(job, kind)
    # The operator renders children for the new status, which it writes first.
    written = {**job, "spec": spec, "status": plan.status}
    written_job = core.parse_job(kind, written, world.config).with_slots(plan.slots)
    key = key_of(job)
    writes = len(plan.deletes) + len(plan.patches) + len(plan.creates) + bool(plan.spec_patch)
    writes += bool(plan.status_changed or plan.writes_objects)
    return {
        "job": {
            "apiVersion": kind.gvk.api_version,
            "kind": kind.gvk.kind,
            "namespace": key.namespace,
            "name": key.name,
            "uid": uid_of(job),
        },
        "spec": spec,
        "status": plan.status,
        "creates": [core.render_child(written_job, create) for create in plan.creates],
        "deletes": [
            {
                "apiVersion": delete.gvk.api_version,
                "kind": delete.gvk.kind,
                "name": delete.name,
                "uid": delete.uid,
                "reason": delete.reason,
            }
            for delete in plan.deletes
        ],
        "patches": _patches(job, kind, plan),
        "events": [{"type": event.type, "reason": event.reason, "message": event.message} for event in plan.events],
        "after": None if plan.requeue_at is None else format_time(plan.requeue_at),
        "writes": writes,
    }


def _patches(job: Json, kind: Kind, plan: Plan) -> list[Json]:
    merge = "application/merge-patch+json"
    key = key_of(job)
    spec = [Patch(kind.gvk, key.namespace, key.name, {"spec": plan.spec_patch})] if plan.spec_patch else []
    return [
        {
            "apiVersion": patch.gvk.api_version,
            "kind": patch.gvk.kind,
            "name": patch.name,
            "subresource": patch.subresource,
            "type": merge,
            "patch": patch.body,
        }
        for patch in [*spec, *plan.patches]
    ]


def apply_plans(world: OfflineCluster) -> Json:
    """The objects after every plan has been executed, as a List that can be edited and planned again."""
    items: list[Json] = []
    other_objects = list(world.other_objects)
    for job, kind in world.jobs:
        job_plan = plan_as_json(world, job, kind)
        deleted_uids = {delete["uid"] for delete in job_plan["deletes"]}
        other_objects = [
            _patched(obj, job_plan["patches"])
            for obj in other_objects
            if not _is_deleted(obj, deleted_uids, other_objects)
        ]
        if uid_of(job) in deleted_uids:
            continue
        meta = {"resourceVersion": "1", "creationTimestamp": format_time(world.now), **job["metadata"]}
        items.append({**job, "metadata": meta, "spec": job_plan["spec"], "status": job_plan["status"]})
        other_objects += [_stored(create, uid_of(job), world.now) for create in job_plan["creates"]]
    return {"apiVersion": "v1", "kind": "List", "items": [*items, *other_objects]}


def _patched(obj: Json, patches: list[Json]) -> Json:
    """The object after those of the merge patches that name it."""
    from trainyard.server.patch.json_patch import (
        merge_patch,  # not at the top: trainyard.server imports an HTTP library
    )

    for patch in patches:
        if (patch["kind"], patch["name"]) == (obj.get("kind"), name_of(obj)):
            obj = merge_patch(obj, patch["patch"])
    return obj


def _is_deleted(obj: Json, deleted_uids: set[str], other_objects: list[Json]) -> bool:
    """True if the object is deleted or has a deleted owner, directly or indirectly (Background propagation)."""
    owners = {uid_of(other): (controller_of(other) or {}).get("uid", "") for other in other_objects}
    owner_chain = [uid_of(obj)]
    while owner_chain[-1] in owners and owners[owner_chain[-1]] not in owner_chain:
        owner_chain.append(owners[owner_chain[-1]])
    return bool(deleted_uids.intersection(filter(None, owner_chain)))


def _stored(create: Json, job: str, now: float) -> Json:
    meta = create["metadata"]
    attempt = meta["labels"].get("trainyard.dev/attempt", "")
    uid = str(uuid.uuid5(uuid.UUID(NO_UID), f"{job} {create['kind']} {meta['name']} {attempt} {now}"))
    server_meta = {**meta, "uid": uid, "resourceVersion": "1", "generation": 1, "creationTimestamp": format_time(now)}
    return {**create, "metadata": server_meta}
