"""Decide the new status and the writes of one job, from its object and its observed children.

Pure: no clock, no I/O, no logging; the same input gives the same answer. The rules, in the order in which they act:
1. A job that another controller manages (managedBy), or that is being deleted, is left alone.
2. A finished job stays finished; only cleanPodPolicy, --node-lost-timeout and the TTL still act.
3. A job whose spec is invalid at its start ends before any child is created.
4. The status patch that counts failed attempts and starts a new attempt is sent before any delete. If the operator
   crashes in between, the next pass finds children of an older attempt and deletes them.
5. A name is free when no child has it. A child in Terminating still has its name.
"""

from __future__ import annotations

from trainyard.core import changes, policy, restarts, status
from trainyard.core import phase as verdicts
from trainyard.core.children import containers
from trainyard.core.job import NO_POD, Job, JobStatus, Kind, Outcome, OwnedObjects, Replica, RoleStatus, Termination
from trainyard.core.model import Create, Delete, Event, Observed, Patch, Plan, Ref, Refusal, Slot
from trainyard.core.names import same_digest
from trainyard.core.read import ignored_edits, ignores_edits, parse_job
from trainyard.objects import Json, format_time
from trainyard.objects.resources import DEPLOYMENT
from trainyard.objects.values import replace


def plan(kind: Kind, wire: Json, seen: Observed, now: float) -> Plan:
    """What should be written for this job next."""
    return decide(parse_job(kind, wire, seen.config, seen.runtime_ids_in_use), seen, now)


def decide(job: Job, seen: Observed, now: float) -> Plan:
    if not policy.is_managed_here(job) or job.wire.get("metadata", {}).get("deletionTimestamp"):
        return Plan(job.status.wire)
    family = OwnedObjects.of(job.uid, seen.children)
    if job.status.outcome:
        return _after_the_end(job, family, seen, now)
    return _Pass(job, seen, family, now).plan()


class _Pass:
    """One reconcile pass over a job that has not ended. Each method decides one thing."""

    def __init__(self, job: Job, seen: Observed, family: OwnedObjects, now: float) -> None:
        self.job, self.seen, self.family, self.now = replace(job, owned=frozenset(family.by_ref)), seen, family, now
        job = self.job
        self.whens: list[float | None] = []
        observed = [job.carrier(slot.role).observe(job, slot, family) for slot in job.slots()]
        self.replicas = [self._believed(replica) for replica in observed]
        self.conditions = status.Conditions(job, self.replicas, now)
        self.failed: list[Replica] = []  # replicas with a newly counted failure
        self.due: list[Replica] = []  # ended replicas to restart alone

    def plan(self) -> Plan:
        job = self.job
        if not job.status.started and job.parsed.problems:
            first = job.parsed.problems[0]
            text = f"{first.text} ({first.path})" if first.path else first.text
            return self._write(Outcome("Invalid", "InvalidSpec", text), job.status)
        memory = self._count(self._begin())
        in_place = policy.restarts_in_place(self.replicas)
        failures = {name: role.failures for name, role in memory.roles.items()}
        judged = replace(job, status=memory)
        verdict = verdicts.compute_phase(judged, self.replicas, failures, in_place, self.now)
        if not verdict.finished:
            memory = self._again(memory, verdict)
            verdict = self._refused(verdict, memory) or verdict
        return self._write(verdict, memory)

    def _believed(self, replica: Replica) -> Replica:
        """Ignore a replica's end before `end.believed`: the watch event of its pod may still arrive. A time further
        away than FIRST_PAUSE was written by a wrong clock. An end that the status has counted is never ignored."""
        counted = any(
            restarts.attempt_of(self.job, replica, uid) in self.job.status.counted_failures
            for uid in replica.failed_attempts
        )
        if (
            replica.termination is None
            or counted
            or not self.now < replica.termination.not_before <= self.now + policy.FIRST_PAUSE
        ):
            return replica
        self.whens.append(replica.termination.not_before)
        return replica._replace(termination=None, failed_attempts=(), state="Starting")

    def _begin(self) -> JobStatus:
        """The memory with the job started, resumed or suspended, as the spec says."""
        job, memory = self.job, self.job.status
        memory = replace(memory, runtime_id=job.runtime_id)
        resumed = memory.suspended and memory.started
        if job.policy.suspend or (resumed and job.parsed.problems):
            return replace(memory, start_time=None, suspended=True, ran=False)
        if memory.started and not resumed:
            memory = replace(memory, roles=self._followed())
            return memory if memory.start_time is not None else replace(memory, start_time=self.now)
        roles = self._given_up()
        for role in job.roles:
            old = memory.role(role.name)
            attempt = old.attempt + 1 if resumed else 0
            roles[role.name] = RoleStatus(attempt, old.failures, role.replicas, role.port, role.digest)
        resumes = memory.resumes + (1 if resumed else 0)
        return replace(
            memory, roles=roles, started=True, suspended=False, ran=False, resumes=resumes, start_time=self.now
        )

    def _followed(self) -> dict[str, RoleStatus]:
        """The remembered roles, updated with the spec edits that take effect on a started job (S11)."""
        job, old = self.job, self.job.status.roles
        if job.parsed.problems:
            return dict(old)
        roles = {name: role for name, role in old.items() if not job.kind.on_template_change(name)} | self._given_up()
        for role in job.roles:
            how, then = job.kind.on_template_change(role.name), old.get(role.name)
            if how:
                same = then is not None and same_digest(then.digest, role.digest)
                again = how == "again" and then is not None and not same
                attempt = then.attempt + again if then else 0
                failures = then.failures if then else 0
                digest = then.digest if then and same else role.digest  # keep the stored form (same_digest)
                roles[role.name] = RoleStatus(attempt, failures, role.replicas, role.port, digest)
        return roles

    def _given_up(self) -> dict[str, RoleStatus]:
        """Roles that the spec no longer has. Their attempts are kept, so that a leftover child is not taken for one of
        a new role of the same name."""
        job = self.job
        gone = {
            name: role
            for name, role in job.status.roles.items()
            if job.kind.on_template_change(name) and not job.role(name)
        }
        return {name: replace(role, replicas=0, digest="") for name, role in gone.items()}

    def _count(self, memory: JobStatus) -> JobStatus:
        """Count each failed attempt once, by uid in the status, even if the operator crashes. All ends of one attempt
        of a gang count once (S4)."""
        counted, roles = list(memory.counted_failures), dict(memory.roles)
        visible: set[str] = set()
        for replica in self.replicas:
            role = roles.get(replica.slot.role)
            for uid in self.job.carrier(replica.slot.role).failed_attempts(replica):
                one = restarts.attempt_of(self.job, replica, uid)
                visible.add(one)
                if one not in counted and role:
                    counted.append(one)
                    self.failed.append(replica)
                    roles[replica.slot.role] = role = replace(role, failures=role.failures + 1)
        unseen = [uid for uid in counted if uid not in visible][-status.KEPT_UIDS :]
        return replace(
            memory, roles=roles, counted_failures=tuple(uid for uid in counted if uid in visible or uid in unseen)
        )

    def _again(self, memory: JobStatus, verdict: Outcome) -> JobStatus:
        """The memory with a new attempt for each role with an ended replica whose retry is due."""
        roles, texts = dict(memory.roles), []
        failed = any(replica.termination and not replica.termination.disrupted for replica in self.replicas)
        for replica in self.replicas:
            end, role = replica.termination, roles.get(replica.slot.role)
            if end is None or role is None or (replica.child and replica.child.attempt < role.attempt):
                continue
            texts.append(
                f"{verdicts.termination_text(replica, end)}; "
                f"{'disrupted' if end.disrupted else 'retryable'}, tried again"
            )
            if verdict.phase == "Suspended" or (self.job.restarts_gang() and failed and end.disrupted):
                continue  # in a gang that has a failure, only the failure's back-off counts
            if (due := self._retry_at(end, role, memory)) > self.now:
                self.whens.append(due)
            elif self.job.kind.restart_scope == "slot":
                self.due.append(replica)
            else:
                again = roles if self.job.restarts_gang() else (replica.slot.role,)
                roles |= {name: replace(roles[name], attempt=memory.role(name).attempt + 1) for name in again}
        if (lost := self._lost(memory)) and verdict.phase != "Suspended" and not failed:
            texts.append(f"{lost} has lost its Job: all are made again")
            roles |= {name: replace(roles[name], attempt=memory.role(name).attempt + 1) for name in roles}
        self.conditions.set("Restarting", bool(texts), "ReplicaEnded" if texts else "Restarted", "; ".join(texts))
        return replace(memory, roles=roles)

    def _lost(self, memory: JobStatus) -> str:
        """The replica of a gang whose Job somebody else has deleted, "" when there is none. Its orphaned pod shows
        that; if the pod is gone before the next pass, too, only that Job is created again (S19)."""
        if not self.job.restarts_gang():
            return ""
        empty = {replica.slot for replica in self.replicas if replica.child is None}
        for pod in self.family.pods_without_owner:
            current = pod.phase != "Succeeded" and pod.attempt == memory.role(pod.role).attempt
            if current and Slot(pod.role, pod.index) in empty:
                return f"{pod.role} {pod.index}"
        return ""

    def _retry_at(self, end: Termination, role: RoleStatus, memory: JobStatus) -> float:
        together = memory.roles.values() if self.job.restarts_gang() else (role,)
        failures = sum(one.failures for one in together)
        return policy.retry_at(self.job, end, failures, role.attempt - memory.resumes, self.now)

    def _refused(self, verdict: Outcome, memory: JobStatus) -> Outcome | None:
        """Writes that the API server refused: an invalid child ends the job, others are reported and retried.

        In a role that follows edits, an invalid child does not end a job that has run. While the job is suspended no
        child is created, so earlier refused creates are not reported.
        """
        asks = verdict.phase != "Suspended"
        creates = changes.missing_creates(replace(self.job, status=memory), self.family) if asks else []
        wanted = {create.ref: create for create in creates}
        made = {ref: one for ref, one in self.seen.refused.items() if one.verb == "create"}
        refused = {ref: one for ref, one in made.items() if ref in wanted}
        for ref, refusal in refused.items():
            slot = wanted[ref].slot
            if refusal.invalid and not (memory.ran and slot and self.job.kind.on_template_change(slot.role)):
                return verdicts.invalid_child(refusal, f"{ref.kind} {ref.name}", memory.ran)
        clashes = {ref: one for ref, one in refused.items() if one.code == 409}
        others = {ref: one for ref, one in refused.items() if one.code != 409}
        if len(made) < len(self.seen.refused):
            deletes, patches, _ = self._all_changes(verdict, replace(self.job, status=memory))
            writes: list[Delete | Patch] = [*deletes, *patches]
            due = {(one.ref, changes.verb(one)) for one in writes}
            others |= {ref: one for ref, one in self.seen.refused.items() if (ref, one.verb) in due}
        reasons = {one.policy or one.reason or "Refused" for one in others.values()}
        self.conditions.set("NameConflict", bool(clashes), "NameTaken" if clashes else "NameFree", _said(clashes))
        podless = self._podless(memory)
        overdue = self._overdue(replace(self.job, status=memory), creates)
        text = "; ".join(filter(None, (_said(others), podless, overdue)))
        reason = min(reasons) if reasons else "NoPod" if podless else "PodTerminating" if overdue else "Unblocked"
        self.conditions.set("Blocked", bool(text), reason, text)
        return None

    def _write(self, verdict: Outcome, memory: JobStatus) -> Plan:
        job = self.job
        after = replace(job, status=memory)
        self._say(verdict, memory)
        memory = replace(memory, conditions=tuple(self.conditions.all))
        if verdict.finished:
            memory = replace(memory, completion_time=self.now, counted_failures=())
        deletes, patches, creates = self._changes(verdict, after)
        gone = frozenset(delete.uid for delete in deletes) if verdict.finished else frozenset()
        tally = _tally(job, self.replicas, verdict, gone)
        again = restarts.count(after, self.replicas, self.family)
        new = status.render_status(job, memory, verdict, tally, again, self.replicas)
        if not verdict.finished:
            self.whens.append(policy.deadline_at(job, memory.start_time))
        else:
            self.whens = [policy.ttl_expires_at(job, self.now)]
        return Plan(
            status=new,
            status_changed=new != job.status.wire,
            spec_patch=None if verdict.finished else _spec_patch(job),
            deletes=tuple(deletes),
            patches=tuple(patches),
            creates=tuple(creates),
            events=self._events([*creates, *deletes]),
            requeue_at=min((when for when in self.whens if when is not None), default=None),
            urgent=status.is_urgent(job.status.wire, new),
        )

    def _events(self, writes: list[Create | Delete]) -> tuple[Event, ...]:
        """The events of this pass: for conditions first, then for new failures, then for creates and deletes."""
        speech = self.job.kind.messages
        announce = speech.condition_event or (lambda job, said: status.default_condition_event(said))
        told = [event for said in self.conditions.updates if (event := announce(self.job, said))]
        facts = (*self.failed, *writes)
        return (*told, *(event for fact in facts for event in speech.write_events(self.job, fact)))

    def _changes(self, verdict: Outcome, after: Job) -> tuple[list[Delete], list[Patch], list[Create]]:
        """The writes that are due now; a refused write waits for its back-off."""
        deletes, patches, creates = self._all_changes(verdict, after)
        return self._due(deletes), self._due(patches), self._due(creates)

    def _due(self, writes: list[changes.W]) -> list[changes.W]:
        due, later = changes.due_writes(writes, self.seen, self.now)
        self.whens.append(later)
        return due

    def _all_changes(self, verdict: Outcome, after: Job) -> tuple[list[Delete], list[Patch], list[Create]]:
        lost, when = changes.force_deletes(after, self.family, self.now)
        self.whens.append(when)
        if verdict.finished:
            clean = changes.effective_clean_policy(after, verdict.reason)
            deletes, patches = changes.clean_pods(after, self.family, clean, verdict.reason)
            return lost + deletes, patches, []
        if verdict.phase == "Suspended":
            deletes, patches = changes.clean_pods(after, self.family, "Running", verdict.reason, True)
            return lost + deletes + changes.suspended_deletes(after, self.family, verdict.reason), patches, []
        creates = changes.startable(after, self.family, changes.missing_creates(after, self.family), self.seen)
        deletes, patches = changes.auxiliary_changes(after, self.family, self.seen)
        for replica in self.replicas:
            resume = after.carrier(replica.slot.role).resume(after, replica)
            patches += [resume] if resume else []
        deletes = [*lost, *changes.stale_deletes(after, self.family), *changes.slot_restarts(after, self.due), *deletes]
        return deletes, patches, creates

    def _say(self, verdict: Outcome, memory: JobStatus) -> None:
        job, conditions = self.job, self.conditions
        if verdict.phase != "Invalid":
            count = sum(role.replicas for role in job.roles)
            conditions.set("Created", True, "JobCreated", f"the job is accepted, with {count} replicas")
        suspended = verdict.phase == "Suspended"
        reason, text = (verdict.reason, verdict.message) if suspended else ("JobResumed", "")
        conditions.set("Suspended", suspended, reason, text)
        runs = not verdict.finished and any(replica.state == "Running" for replica in self.replicas)
        text = "; ".join(["at least one replica runs" if runs else verdict.message, *_stuck(self.replicas)])
        conditions.set("Running", runs, "JobRunning" if runs else verdict.reason, text)
        judged = job.kind.supervised_slots_of(job)
        lost = [r for r in self.replicas if r.state == "Failed" and r.slot not in judged]
        texts = [f"{r.slot.role} {r.slot.index} has given up: {r.message}" for r in lost]
        beside = _beside(job, self.family)
        reason = "ReplicaFailed" if lost else "DeploymentUnavailable" if beside else "Restored"
        conditions.set("Degraded", bool(lost or beside) and not verdict.finished, reason, "; ".join([*texts, *beside]))
        reason, text = _edited(job, memory)
        conditions.set("SpecChangeIgnored", bool(text), reason, text)
        unknown = ", ".join(job.parsed.unknown)
        text = f"not known here, and not looked at: {unknown}" if unknown else ""
        conditions.set("UnknownFields", bool(unknown), "UnknownFields", text)
        if verdict.finished:
            for passing in ("Restarting", "Blocked", "NameConflict"):
                conditions.set(passing, False, verdict.reason, "")
            end = "Succeeded" if verdict.phase == "Succeeded" else "Failed"
            conditions.set(end, True, verdict.reason, verdict.message)

    def _podless(self, memory: JobStatus) -> str:
        """The text when the controller of a child has created no pod for PODLESS_SECONDS; its events say why.

        The time counts from the newest pod, so that a job whose thousand pods come one after another is not reported,
        and never from before the job was resumed.
        """
        waits = [r for r in self.replicas if r.message == NO_POD and r.child is not None]
        if not waits or memory.start_time is None:
            return ""
        pods = (pod.created for pods in self.family.pods_by_owner.values() for pod in pods)
        when = max(memory.start_time, *(r.child.created for r in waits if r.child), *pods) + PODLESS_SECONDS
        if self.now < when:
            self.whens.append(when)
            return ""
        slot, child = waits[0].slot, waits[0].child
        name = f"{child.kind} {child.name}" if child else ""
        return f"{slot.role} {slot.index} waits: {name} has no pod, and its events say why"

    def _overdue(self, job: Job, creates: list[Create]) -> str:
        """The text when a new attempt waits for an older pod that is in Terminating long past its grace period."""
        owners = {child.uid for child in changes.older_pods(job, self.family)} if creates else set()
        every = (
            (*self.family.pods_without_owner, *(pod for pods in self.family.pods_by_owner.values() for pod in pods))
            if owners
            else ()
        )
        late = [pod for pod in every if pod.delete_deadline and {pod.uid, pod.owner} & owners]
        if not late:
            return ""
        pod = min(late, key=lambda one: (one.delete_deadline, one.name))
        if self.now < pod.delete_deadline + PODLESS_SECONDS:
            self.whens.append(pod.delete_deadline + PODLESS_SECONDS)
            return ""
        return (
            f"a new attempt waits for Pod {pod.name} of attempt {pod.attempt}, which should have ended at "
            f"{format_time(pod.delete_deadline)}: see whether its node answers, set --node-lost-timeout or delete it "
            "by force"
        )


PODLESS_SECONDS = 30.0
"""Seconds that a missing pod, or a pod past its grace period, may take before condition Blocked reports it."""

STUCK = frozenset(
    {
        "Unschedulable",
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrImageNeverPull",
        "InvalidImageName",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
        "CrashLoopBackOff",
    }
)
"""Pod and container reasons that seldom pass by themselves; conditions report them."""


def _stuck(replicas: list[Replica]) -> list[str]:
    """One text for each stuck replica, at most three, for the message of condition Running."""
    waits = [
        f"{r.slot.role} {r.slot.index} waits: {r.message}"
        for r in replicas
        if r.message in STUCK and r.termination is None
    ]
    return waits[:3]


def _beside(job: Job, family: OwnedObjects) -> list[str]:
    """Why a Deployment of the job is not available; at most one text."""
    if DEPLOYMENT not in job.kind.child_resources:
        return []
    names = {ref.name: child for ref, child in family.by_ref.items() if ref.kind == DEPLOYMENT.kind}
    texts = [f"Deployment {name}: {one.reason}: {one.message}" for name, one in names.items() if one.reason]
    for pod in family.pods_without_owner if names and not texts else ():
        waits = [pod.reason, *(one.reason for one in containers(pod) if one.state == "waiting")]
        if pod.index < 0 and not pod.deleting and (why := next((one for one in waits if one in STUCK), "")):
            texts.append(": ".join(filter(None, (f"Pod {pod.name}", why, pod.message))))
    return texts[:1]


def _after_the_end(job: Job, family: OwnedObjects, seen: Observed, now: float) -> Plan:
    """The plan of a finished job: its status never changes; its children are cleaned up, and the TTL deletes it."""
    old = job.status
    expires = policy.ttl_expires_at(job, old.completion_time)
    if expires is not None and now >= expires:
        text = f"finished {job.policy.ttl} s ago (ttlSecondsAfterFinished)"
        gone = Delete(job.kind.gvk, job.key.name, job.uid, text)
        due, again = changes.due_writes([gone], seen, now)
        told = job.kind.messages.write_events(job, gone) if due else ()
        return Plan(old.wire, deletes=tuple(due), events=told, requeue_at=again)
    reason = next((str(c.get("reason")) for c in old.conditions if c.get("type") == old.outcome), "")
    lost, when = changes.force_deletes(job, family, now)
    swept, patches = changes.clean_pods(job, family, changes.effective_clean_policy(job, reason), reason)
    deletes, later = changes.due_writes(lost + swept, seen, now)
    patches, again = changes.due_writes(patches, seen, now)
    after = min((one for one in (expires, when, later, again) if one is not None), default=None)
    return Plan(old.wire, deletes=tuple(deletes), patches=tuple(patches), requeue_at=after)


def _spec_patch(job: Job) -> Json | None:
    """The merge patch that stores what the schema cannot default; sent once, before the first status (S29)."""
    if job.status.wire.get("conditions"):
        return None
    spec = job.wire.get("spec")
    stored = spec if isinstance(spec, dict) else {}
    return {key: value for key, value in job.parsed.spec.items() if stored.get(key) != value} or None


def _tally(job: Job, replicas: list[Replica], verdict: Outcome, gone: frozenset[str]) -> dict[str, dict[str, int]]:
    """Count the replicas of each role by state. The final tally is never updated: what is deleted now is Unknown."""
    tally: dict[str, dict[str, int]] = {role.name: {} for role in job.roles}
    for replica in replicas:
        states, state = tally[replica.slot.role], replica.state
        if (
            verdict.finished
            and replica.termination is not None
            and not replica.termination.disrupted
            and state != "Succeeded"
        ):
            state = "Failed"  # it is not retried any more
        elif state in ("Starting", "Running") and replica.child and replica.child.uid in gone:
            state = "Unknown"
        states[state] = states.get(state, 0) + (replica.running if state == "Running" else 1)
    return tally


def _said(refused: dict[Ref, Refusal]) -> str:
    return "; ".join(f"{ref.kind} {ref.name}: {refusal.message}" for ref, refusal in sorted(refused.items())[:3])


def _edited(job: Job, memory: JobStatus) -> tuple[str, str]:
    """Reason and message of condition SpecChangeIgnored; the message is "" when no edit is ignored (S1, S11)."""
    if memory.suspended and memory.started and not job.policy.suspend:
        return "InvalidSpec", f"{job.parsed.problems[0]}: the job stays suspended until that is mended"
    edits = ignored_edits(job.kind, job.parsed, job.status) if ignores_edits(job.parsed, job.status) else []
    if not edits:
        return "SpecRestored", ""
    fix = "the job has started and goes on as it was; suspend it, edit it and resume it, or make a new job"
    return "JobStarted", f"{'; '.join(edits)}: {fix}"
