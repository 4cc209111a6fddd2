"""What must hold of every history, by the objects that the API server has stored and the writes that reached it.

| invariant | |
|---|---|
| one writer | no write without a lease, nor while another writer has its lease (`proxy.Journal`) |
| older attempts | a new attempt waits for the pods of older ones: of the job in a gang, else of its slot |
| owned | what an operator creates belongs to a job that exists, by owner reference (controller) and label |
| not doubled | at most one live pod of a job for each role, index and attempt (of a Job: one that does not terminate) |
| final | a job that has ended stays as it ended, and has one end |
| counted | `restarts` never falls |
| by uid | every delete names the uid of an object that the API server has stored |
| ends reached | every job ends, and nothing of a deleted job stays |
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from tests.faults.history_jobs import KINDS, restarts_gang
from tests.faults.proxy import Write
from trainyard.objects import Json, decode, is_condition_true, labels_of, uid_of
from trainyard.objects.labels import ATTEMPT, INDEX, OWNER, ROLE
from trainyard.server.model.store import LogEntry

JOBS = tuple(f"{kind.gvk.plural}." for kind in KINDS.values())
ENDS = ("Succeeded", "Complete", "Failed")
CARRIERS = ("pods", "jobs.batch")


@dataclass(slots=True)
class Ends:
    """How each job ended, by its name; and what did not end."""

    jobs: dict[str, str]
    violations: list[str]


def check(entries: list[LogEntry], writes: list[Write], ends: Ends) -> list[str]:
    """Every violation, with the object and the revision."""
    problems = list(ends.violations)
    jobs: dict[str, Json] = {}  # by uid, as last stored
    gone: set[str] = set()
    uids: set[str] = set()
    live: dict[tuple[str, str, str], dict[str, str]] = defaultdict(dict)  # slot -> uid of the pod -> attempt
    for entry in entries:
        record = entry.record
        new: Json = decode(record.body) if record else {}
        old: Json = decode(entry.previous.body) if entry.previous else {}
        obj = new or old
        uid = uid_of(obj)
        uids.add(uid)
        where = f"{entry.store} {entry.key.name} at {entry.revision}"
        if entry.store.startswith(JOBS):
            if new:
                problems += _job(jobs.get(uid), new, where)
                jobs[uid] = new
            else:
                gone.add(uid)
        owner = labels_of(obj).get(OWNER, "")
        if not owner:
            continue
        if record and not old and owner not in jobs:
            problems.append(f"owned: {where} has the label of a job that never was: {owner}")
        if record and not old and entry.store in CARRIERS:
            problems += _owned(new, where)
        if entry.store == "pods":
            problems += _pod(live, new, old, where, owner in jobs and restarts_gang(jobs[owner]))
    problems += _deletes(writes, uids)
    return problems


def _job(before: Json | None, job: Json, where: str) -> list[str]:
    problems = []
    ends = {kind for kind in ENDS if is_condition_true((job.get("status") or {}).get("conditions"), kind)}
    had = {kind for kind in ENDS if is_condition_true(((before or {}).get("status") or {}).get("conditions"), kind)}
    if "Failed" in ends and len(ends) > 1:
        problems.append(f"final: {where} has the ends {sorted(ends)}")
    if had - ends:
        problems.append(f"final: {where} had ended as {sorted(had)}, and is {sorted(ends)}")
    restarts = int((job.get("status") or {}).get("restarts") or 0)
    previous = int(((before or {}).get("status") or {}).get("restarts") or 0)
    if restarts < previous:
        problems.append(f"counted: {where} has {restarts} restarts, it had {previous}")
    return problems


def _owned(child: Json, where: str) -> list[str]:
    references = [ref for ref in child["metadata"].get("ownerReferences") or [] if ref.get("controller")]
    if len(references) != 1:
        return [f"owned: {where} has {len(references)} controllers"]
    return []


def _pod(live: dict[tuple[str, str, str], dict[str, str]], new: Json, old: Json, where: str, gang: bool) -> list[str]:
    pod = new or old
    labels = labels_of(pod)
    slot = (labels.get(OWNER, ""), labels.get(ROLE, ""), labels.get(INDEX, ""))
    over = not new or new.get("status", {}).get("phase") in ("Succeeded", "Failed") or _replaced_by_its_job(new)
    there, problems = live[slot], []
    attempt = labels.get(ATTEMPT, "0")
    if over:
        there.pop(uid_of(pod), None)
        return []
    if not old and new:
        if not slot[2]:  # a pod of a StatefulSet: its name tells it apart
            return []
        if attempt in there.values():
            problems.append(f"not doubled: {where} is a second live pod of {slot} in attempt {attempt}")
        older = [
            other
            for place, pods in live.items()
            if place == slot or (gang and place[0] == slot[0])
            for other in pods.values()
            if int(other) < int(attempt)
        ]
        if older:
            problems.append(f"older attempts: {where} starts while pods of attempts {older} are there")
    there[uid_of(pod)] = attempt
    return problems


def _replaced_by_its_job(pod: Json) -> bool:
    """A Job replaces a pod that terminates ten seconds after its `finishedAt`, by default (podReplacementPolicy).

    So the pods of a Job do overlap where the kubelet's clock is behind that of the Job's controller.
    """
    controllers = [ref["kind"] for ref in pod["metadata"].get("ownerReferences") or [] if ref.get("controller")]
    return controllers == ["Job"] and bool(pod["metadata"].get("deletionTimestamp"))


def _deletes(writes: list[Write], uids: set[str]) -> list[str]:
    problems = []
    for write in writes:
        if write.method == "DELETE" and not write.lease:
            conditions: Any = json.loads(write.body or b"{}").get("preconditions") or {}
            if conditions.get("uid") not in uids:
                problems.append(f"by uid: DELETE {write.path} names the uid {conditions.get('uid')}")
    return problems
