"""One simulated job: its children as an API server would hold them, passes carried out, pods that do as told.

Rules for this file:
- It knows no kind: whatever a kind makes is rendered, stored and patched here the same way.
- It is for stories with one line each ("the master ends with 1"); every small world is visited in `worlds`.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

from trainyard import kinds
from trainyard.core import Config, Kind, Observed, Plan, Refusal, decode_child, parse_job, plan, render_child
from trainyard.kinds.policies import Policies
from trainyard.objects import Json, Ref, controller_reference, format_time, name_of, uid_of
from trainyard.objects.writes import Patch

NOW = 1_700_000_000.0
UID = "11111111-2222-4333-8444-555555555555"
MOST = 10


@dataclass
class SimulatedJob:
    """A job and its children. `step` carries a pass out; `run`, `end` and the like are what happens to the pods."""

    kind: Kind
    job: Json
    now: float = NOW
    objects: dict[Ref, Json] = field(default_factory=dict)
    refused: dict[Ref, Refusal] = field(default_factory=dict)
    config: Config = field(default_factory=Config)
    template_source: Json | None = None
    _made: int = 0

    def observed(self) -> Observed:
        children = tuple(decode_child(obj) for obj in self.objects.values())
        return Observed(children, refused=dict(self.refused), config=self.config, template_source=self.template_source)

    def look(self) -> Plan:
        """What would be written, without writing it."""
        return plan(self.kind, self.job, self.observed(), self.now)

    def step(self, later: float = 0.0) -> Plan:
        """One pass, carried out as the executor does: the spec patch alone, else status, deletes, patches, creates."""
        self.now += later
        planned = self.look()
        if planned.spec_patch:
            self.job = {**self.job, "spec": {**self.job["spec"], **planned.spec_patch}}
            return self.step()
        self.job = {**self.job, "status": planned.status}
        for delete in planned.deletes:
            self.drop(delete.uid)
        for patch in planned.patches:
            self._patch(patch)
        job = parse_job(self.kind, self.job, self.config).with_slots(planned.slots)
        for create in planned.creates:
            self._store(render_child(job, create))
        return planned

    def settle(self) -> Json:
        """Passes until nothing is left to do; the status then."""
        for _ in range(MOST):
            if self.step().idle:
                status: Json = self.job["status"]
                return status
        raise AssertionError("it never settles")

    def edit(self, **spec: Any) -> None:
        """The user's edit of fields directly under spec; a policy is edited in the field where the kind has it."""
        field = self.kind.api.policy_field
        policies = {name: spec.pop(name) for name in Policies.__struct_fields__ if field and name in spec}
        if policies:
            spec[field] = {**(self.job["spec"].get(field) or {}), **policies}
        self.job = {**self.job, "spec": {**self.job["spec"], **spec}}

    def names(self, kind: str = "") -> list[str]:
        return [ref.name for ref in self.objects if kind in ("", ref.kind)]

    def get(self, kind: str, name: str) -> Json:
        return self.objects[Ref(kind, name)]

    def run(self, *workloads: str) -> None:
        """The pods of these children run; of all that have a template when none is named."""
        for ref, body in list(self.objects.items()):
            if not workloads or ref.name in workloads:
                self._run(ref, body)

    def _run(self, ref: Ref, body: Json) -> None:
        if ref.kind == "Pod" and "template" not in (body.get("spec") or {}):
            if (body.get("status") or {}).get("phase") in (None, "Pending"):
                self.objects[ref] = {**body, "status": running(body, self.now)}
        elif ref.kind == "Job" and not self.pods(ref.name) and not (body.get("status") or {}).get("conditions"):
            self._pod(body, f"{ref.name}-{self._made:05}")
        elif ref.kind == "StatefulSet":
            for index in range(body["spec"]["replicas"]):
                if Ref("Pod", f"{ref.name}-{index}") not in self.objects:
                    self._pod(body, f"{ref.name}-{index}")

    def pods(self, workload: str) -> list[str]:
        """The pods of one child: itself, or those it owns."""
        if Ref("Pod", workload) in self.objects:
            return [workload]
        owners = {uid_of(obj) for ref, obj in self.objects.items() if ref.name == workload and ref.kind != "Service"}
        return [ref.name for ref, obj in self.objects.items() if ref.kind == "Pod" and owner_of(obj) in owners]

    def end(self, workload: str, code: int, reason: str = "", container: str = "", message: str = "") -> None:
        """The pod of this child ends; a Job that tries no more says so in the same breath."""
        name = self.pods(workload)[-1]
        pod = self.get("Pod", name)
        listed = [container["name"] for container in pod["spec"]["containers"]]
        culprit = container or (self.kind.roles.container if self.kind.roles.container in listed else listed[0])
        pod["status"] = ended(pod, self.now, culprit, code, reason, message)
        job = self.objects.get(Ref("Job", workload))
        if job and (code == 0 or job["spec"].get("backoffLimit") == 0):
            self.finish(workload, "" if code == 0 else "BackoffLimitExceeded")

    def finish(self, job: str, failed: str = "", message: str = "") -> None:
        """The batch Job's last condition: Complete, or Failed with this reason."""
        kind, reason_ = ("Failed", failed) if failed else ("Complete", "")
        last = {"type": kind, "status": "True", "lastTransitionTime": format_time(self.now)}
        more = (
            {"reason": reason_, "message": message or "Job has reached the specified backoff limit"} if failed else {}
        )
        body = self.get("Job", job)
        body["status"] = {"conditions": [{**last, **more}]}

    def restart(self, workload: str, code: int) -> None:
        """The node starts an ended container again, in place."""
        for name in self.pods(workload):
            pod = self.get("Pod", name)
            first = pod["status"]["containerStatuses"][0]
            first["restartCount"] += 1
            first["lastState"] = {"terminated": {"exitCode": code, "reason": "Error"}}

    def evict(self, workload: str) -> None:
        """The machine takes the pod away: a disruption."""
        name = self.pods(workload)[-1]
        status = self.get("Pod", name)["status"]
        status |= {"phase": "Failed", "reason": "Evicted"}
        status["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}]

    def foreign(self, kind: str, name: str, owner: str = "") -> None:
        """An object of another owner holds a child's name."""
        text = f"belongs to {owner}" if owner else "has no owner"
        message = f"an object of that name exists that is not this job's ({text}); delete or rename it"
        self.refused[Ref(kind, name)] = Refusal(409, "AlreadyExists", message, self.now)
        self.objects.pop(Ref(kind, name), None)

    def lose(self, kind: str, name: str) -> None:
        """Another client deletes this child with its pods."""
        self.drop(uid_of(self.get(kind, name)))

    def drop(self, uid: str) -> None:
        """An object is gone, and what it owns."""
        for ref, obj in list(self.objects.items()):
            if uid_of(obj) == uid:
                del self.objects[ref]
        for obj in [obj for obj in self.objects.values() if owner_of(obj) == uid]:
            self.drop(uid_of(obj))

    def _patch(self, patch: Patch) -> None:
        ref = Ref(patch.gvk.kind, patch.name)
        self.objects[ref] = merged(self.objects[ref], patch.body)
        size = (patch.body.get("spec") or {}).get("replicas")
        for name in self.pods(patch.name) if ref.kind == "StatefulSet" else ():
            if size is not None and int(name.rpartition("-")[2]) >= size:
                self.drop(uid_of(self.get("Pod", name)))

    def _store(self, body: Json) -> None:
        ref = Ref(str(body["kind"]), name_of(body))
        if ref in self.objects:
            raise AssertionError(f"{ref.kind} {ref.name} exists already")
        self._made += 1
        uid = str(uuid.uuid5(uuid.UUID(UID), f"{ref.kind} {ref.name} {self._made}"))
        meta = {**body["metadata"], "uid": uid, "creationTimestamp": format_time(self.now)}
        self.objects[ref] = {**body, "metadata": meta}

    def _pod(self, owner: Json, name: str) -> None:
        template = owner["spec"]["template"]
        meta = {**(template.get("metadata") or {}), "name": name, "namespace": owner["metadata"]["namespace"]}
        owned = controller_reference(str(owner["apiVersion"]), str(owner["kind"]), name_of(owner), uid_of(owner))
        pod: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": {**meta, "ownerReferences": [owned]}}
        self._store({**pod, "spec": template["spec"], "status": running(template, self.now)})


def merged(target: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, part in patch.items():
        if part is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), part)
    return result


def running(template: Json, at: float) -> Json:
    """The status of a pod that has just begun to run."""
    names = [container["name"] for container in template["spec"]["containers"]]
    state = {"running": {"startedAt": format_time(at)}}
    listed = [{"name": name, "state": dict(state), "restartCount": 0} for name in names]
    return {"phase": "Running", "startTime": format_time(at), "containerStatuses": listed}


def ended(pod: Json, at: float, culprit: str, code: int, reason: str, message: str) -> Json:
    """The status of a pod whose containers have all ended; the culprit with this code."""
    listed = []
    for container_status in pod["status"]["containerStatuses"]:
        mine = code if container_status["name"] == culprit else 0
        end_reason = (reason if container_status["name"] == culprit else "") or ("Completed" if mine == 0 else "Error")
        state: Json = {"exitCode": mine, "reason": end_reason, "finishedAt": format_time(at)}
        if message and container_status["name"] == culprit:
            state["message"] = message
        listed.append({**container_status, "state": {"terminated": state}})
    return {**pod["status"], "phase": "Failed" if code else "Succeeded", "containerStatuses": listed}


def owner_of(obj: Json) -> str:
    """The uid of what an object belongs to."""
    owners = obj["metadata"].get("ownerReferences") or [{}]
    return str(owners[0].get("uid", ""))


def shipped_source(kind: Kind, job: Json) -> Json | None:
    """The object that has the job's templates, if it is one that comes with the kind."""
    reference = kind.template_source.reference(job) if kind.template_source else None
    named = (obj for _, obj in kinds.shipped_objects(kind) if reference and name_of(obj) == reference[1].name)
    return next(named, None)


def simulate(kind: Kind, job: Json, config: Config | None = None, at: float = NOW) -> SimulatedJob:
    """A job that was just taken and whose children exist."""
    simulated = SimulatedJob(kind, job, at, config=config or Config(), template_source=shipped_source(kind, job))
    simulated.settle()
    return simulated
