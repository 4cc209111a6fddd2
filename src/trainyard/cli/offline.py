"""The world in a file: jobs and their observed children, as `trainyard plan` reads, plans and prints them. Pure.

It calls the very same `plan` as the operator; only who sees the world is different (docs: the interface of `plan`).
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from itertools import count

from msgspec.structs import replace

from trainyard import core
from trainyard.core import Child, Config, Job, Kind, Observed, Plan, Ref, Refusal
from trainyard.objects import (
    Json,
    controller_of,
    format_time,
    key_of,
    name_of,
    namespace_of,
    revision_of,
    uid_of,
)

NO_UID = "00000000-0000-4000-8000-000000000000"
"""The uid of a job that has none yet, so that the same file always gives the same plan. The second such job of the
input has one that ends in 1, and so on: their children must be told apart."""


@dataclass
class World:
    """Everything in the input. `jobs` are those to plan for, `others` all the other objects, in the input's order."""

    jobs: list[tuple[Json, Kind]]
    others: list[Json]
    config: Config
    now: float
    ids: dict[str, set[str]] = field(default_factory=dict)  # RuntimeIds by namespace

    def __post_init__(self) -> None:
        taken = {uid_of(job) for job, _ in self.jobs}
        free = (uid for number in count() if (uid := f"{NO_UID[:-12]}{number:012}") not in taken)
        self.jobs = [(job if uid_of(job) else _with_uid(job, next(free)), kind) for job, kind in self.jobs]
        self.jobs = [(_in_default(job), kind) for job, kind in self.jobs]
        self.others = [_in_default(obj) for obj in self.others]
        for job, _ in self.jobs:
            if found := core.runtime_id_of(job):
                self.ids.setdefault(namespace_of(job), set()).add(found)

    def plan(self, job: Json, kind: Kind) -> Plan:
        """The operator's plan for one job of this world."""
        own = core.runtime_id_of(job)
        used = self.ids.setdefault(namespace_of(job), set())
        in_use = frozenset(used - {own})
        read = core.parse_job(kind, job, self.config, in_use)
        used.add(read.runtime_id)
        return core.plan(kind, job, self._seen(job, read, in_use), self.now)

    def _seen(self, job: Json, read: Job, in_use: frozenset[str]) -> Observed:
        children, refused = [], {}
        family = self._family(job)
        slots = {Ref(read.carrier(slot.role).gvk.kind, read.kind.child_name(read, slot)): slot for slot in read.slots()}
        for obj in self.others:
            if namespace_of(obj) != namespace_of(job):
                continue
            if uid_of(obj) in family:
                child = observed(obj)
                slot = slots.get(child.ref) if child.index < 0 else None
                # A child written by hand has an owner and a name; without our labels these say which one it is.
                children.append(replace(child, role=slot.role, index=slot.index) if slot else child)
            else:
                ref = Ref(str(obj.get("kind")), name_of(obj))
                refused[ref] = Refusal(409, "AlreadyExists", _whose(obj), self.now)
        return Observed(tuple(children), in_use, refused, self.config)

    def _family(self, job: Json) -> set[str]:
        """The uids of the job's children and of their children."""
        owners = {uid_of(obj): (controller_of(obj) or {}).get("uid") for obj in self.others if uid_of(obj)}
        found = {uid_of(job)}
        while more := {uid for uid, owner in owners.items() if owner in found and uid not in found}:
            found |= more
        return found - {uid_of(job)}

    def spec(self, job: Json, kind: Kind) -> Json:
        own = core.runtime_id_of(job)
        in_use = self.ids.get(namespace_of(job), set()) - {own}
        return core.parse_job(kind, job, self.config, in_use).parsed.spec


def observed(obj: Json) -> Child:
    """The record of one object of the input. Raises ValueError when it does not have an object's shape."""
    return core.child_of(obj, str(obj.get("kind")))


def _with_uid(job: Json, uid: str) -> Json:
    return {**job, "metadata": {**(job.get("metadata") or {}), "uid": uid}}


def _in_default(obj: Json) -> Json:
    meta = obj.get("metadata")
    meta = meta if isinstance(meta, dict) else {}
    return {**obj, "metadata": {**meta, "namespace": meta.get("namespace") or "default"}}


def _whose(obj: Json) -> str:
    owner = controller_of(obj)
    whose = f"belongs to {owner.get('kind')} {owner.get('name')}" if owner else "has no owner"
    return f"an object of that name exists that is not this job's ({whose}); delete or rename it"


def is_stored(job: Json) -> bool:
    """True for a job that an API server has taken already: then what is wrong with it is part of the plan."""
    return bool(revision_of(job)) or isinstance(job.get("status"), dict)


def shown(world: World, job: Json, kind: Kind) -> Json:
    """One job's plan, exactly as the interface has it."""
    spec = world.spec(job, kind)
    plan = world.plan(job, kind)
    # As the operator does it: children are made for what the status says once it is written.
    written = core.parse_job(kind, {**job, "spec": spec, "status": plan.status}, world.config)
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
        "creates": [core.render_child(written, create) for create in plan.creates],
        "deletes": [
            {"apiVersion": d.gvk.api_version, "kind": d.gvk.kind, "name": d.name, "uid": d.uid, "reason": d.reason}
            for d in plan.deletes
        ],
        "patches": _patches(job, kind, plan),
        "events": [{"type": e.type, "reason": e.reason, "message": e.message} for e in plan.events],
        "after": None if plan.requeue_at is None else format_time(plan.requeue_at),
        "writes": writes,
    }


def _patches(job: Json, kind: Kind, plan: Plan) -> list[Json]:
    merge = "application/merge-patch+json"
    spec = [(kind.gvk, name_of(job), "", {"spec": plan.spec_patch})] if plan.spec_patch else []
    return [
        {
            "apiVersion": gvk.api_version,
            "kind": gvk.kind,
            "name": name,
            "subresource": subresource,
            "type": merge,
            "patch": patch,
        }
        for gvk, name, subresource, patch in [*spec, *plan.patches]
    ]


def applied(world: World) -> Json:
    """The world after every plan was carried out, as a List that can be edited and planned again."""
    items: list[Json] = []
    others = list(world.others)
    for job, kind in world.jobs:
        found = shown(world, job, kind)
        gone = {one["uid"] for one in found["deletes"]}
        others = [_patched(obj, found["patches"]) for obj in others if not _goes(obj, gone, others)]
        if uid_of(job) in gone:
            continue
        meta = {"resourceVersion": "1", "creationTimestamp": format_time(world.now), **job["metadata"]}
        items.append({**job, "metadata": meta, "spec": found["spec"], "status": found["status"]})
        others += [_stored(create, uid_of(job), world.now) for create in found["creates"]]
    return {"apiVersion": "v1", "kind": "List", "items": [*items, *others]}


def _patched(obj: Json, patches: list[Json]) -> Json:
    """The object with the merge patches that are for it."""
    from trainyard.server.patches import merge  # only here: the server's room loads an HTTP library

    for patch in patches:
        if (patch["kind"], patch["name"]) == (obj.get("kind"), name_of(obj)):
            obj = merge(obj, patch["patch"])
    return obj


def _goes(obj: Json, gone: set[str], others: list[Json]) -> bool:
    """True for what is deleted, and for what is owned by it (Background propagation)."""
    owners = {uid_of(one): (controller_of(one) or {}).get("uid", "") for one in others}
    chain = [uid_of(obj)]
    while chain[-1] in owners and owners[chain[-1]] not in chain:
        chain.append(owners[chain[-1]])
    return bool(gone.intersection(filter(None, chain)))


def _stored(create: Json, job: str, now: float) -> Json:
    meta = create["metadata"]
    attempt = meta["labels"].get("trainyard.dev/attempt", "")
    uid = str(uuid.uuid5(uuid.UUID(NO_UID), f"{job} {create['kind']} {meta['name']} {attempt} {now}"))
    stamped = {**meta, "uid": uid, "resourceVersion": "1", "generation": 1, "creationTimestamp": format_time(now)}
    return {**create, "metadata": stamped}
