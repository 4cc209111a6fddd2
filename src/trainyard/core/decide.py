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
from trainyard.core import judge as verdicts
from trainyard.core.children import containers
from trainyard.core.job import NO_POD, End, Family, Job, Kind, Memory, Replica, RoleMemory, Verdict
from trainyard.core.model import DEPLOYMENT, Create, Delete, Event, Patch, Plan, Ref, Refusal, Seen, Slot
from trainyard.core.names import same_digest
from trainyard.core.read import changed, is_fixed, read
from trainyard.objects import Json, format_time
from trainyard.objects.values import replace


def plan(kind: Kind, wire: Json, seen: Seen, now: float) -> Plan:
    """What should be written for this job next."""
    return decide(read(kind, wire, seen.config, seen.ids_in_use), seen, now)


def decide(job: Job, seen: Seen, now: float) -> Plan:
    if not policy.is_ours(job) or job.wire.get("metadata", {}).get("deletionTimestamp"):
        return Plan(job.memory.wire)
    family = Family.of(job.uid, seen.children)
    if job.memory.end:
        return _after_the_end(job, family, seen, now)
    return _Pass(job, seen, family, now).plan()


class _Pass:
    """One reconcile pass over a job that has not ended. Each method decides one thing."""

    def __init__(self, job: Job, seen: Seen, family: Family, now: float) -> None:
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
        if not job.memory.started and job.wanted.problems:
            first = job.wanted.problems[0]
            text = f"{first.text} ({first.path})" if first.path else first.text
            return self._write(Verdict("Invalid", "InvalidSpec", text), job.memory)
        memory = self._count(self._begin())
        in_place = policy.in_place(self.replicas)
        failures = {name: role.failures for name, role in memory.roles.items()}
        judged = replace(job, memory=memory)
        verdict = verdicts.judge(judged, self.replicas, failures, in_place, self.now)
        if not verdict.over:
            memory = self._again(memory, verdict)
            verdict = self._refused(verdict, memory) or verdict
        return self._write(verdict, memory)

    def _believed(self, replica: Replica) -> Replica:
        """Ignore a replica's end before `end.believed`: the watch event of its pod may still arrive. A time further
        away than FIRST_PAUSE was written by a wrong clock. An end that the status has counted is never ignored."""
        counted = any(restarts.attempt_of(self.job, replica, uid) in self.job.memory.counted for uid in replica.failed)
        if replica.end is None or counted or not self.now < replica.end.believed <= self.now + policy.FIRST_PAUSE:
            return replica
        self.whens.append(replica.end.believed)
        return replica._replace(end=None, failed=(), state="Starting")

    def _begin(self) -> Memory:
        """The memory with the job started, resumed or suspended, as the spec says."""
        job, memory = self.job, self.job.memory
        memory = replace(memory, runtime_id=job.runtime_id)
        resumed = memory.suspended and memory.started
        if job.policy.suspend or (resumed and job.wanted.problems):
            return replace(memory, start=None, suspended=True, ran=False)
        if memory.started and not resumed:
            memory = replace(memory, roles=self._followed())
            return memory if memory.start is not None else replace(memory, start=self.now)
        roles = self._given_up()
        for role in job.roles:
            old = memory.role(role.name)
            attempt = old.attempt + 1 if resumed else 0
            roles[role.name] = RoleMemory(attempt, old.failures, role.replicas, role.port, role.digest)
        resumes = memory.resumes + (1 if resumed else 0)
        return replace(memory, roles=roles, started=True, suspended=False, ran=False, resumes=resumes, start=self.now)

    def _followed(self) -> dict[str, RoleMemory]:
        """The remembered roles, updated with the spec edits that take effect on a started job (S11)."""
        job, old = self.job, self.job.memory.roles
        if job.wanted.problems:
            return dict(old)
        roles = {name: role for name, role in old.items() if not job.kind.follows(name)} | self._given_up()
        for role in job.roles:
            how, then = job.kind.follows(role.name), old.get(role.name)
            if how:
                same = then is not None and same_digest(then.digest, role.digest)
                again = how == "again" and then is not None and not same
                attempt = then.attempt + again if then else 0
                failures = then.failures if then else 0
                digest = then.digest if then and same else role.digest  # keep the stored form (same_digest)
                roles[role.name] = RoleMemory(attempt, failures, role.replicas, role.port, digest)
        return roles

    def _given_up(self) -> dict[str, RoleMemory]:
        """Roles that the spec no longer has. Their attempts are kept, so that a leftover child is not taken for one of
        a new role of the same name."""
        job = self.job
        gone = {name: role for name, role in job.memory.roles.items() if job.kind.follows(name) and not job.role(name)}
        return {name: replace(role, replicas=0, digest="") for name, role in gone.items()}

    def _count(self, memory: Memory) -> Memory:
        """Count each failed attempt once, by uid in the status, even if the operator crashes. All ends of one attempt
        of a gang count once (S4)."""
        counted, roles = list(memory.counted), dict(memory.roles)
        visible: set[str] = set()
        for replica in self.replicas:
            role = roles.get(replica.slot.role)
            for uid in self.job.carrier(replica.slot.role).failures(replica):
                one = restarts.attempt_of(self.job, replica, uid)
                visible.add(one)
                if one not in counted and role:
                    counted.append(one)
                    self.failed.append(replica)
                    roles[replica.slot.role] = role = replace(role, failures=role.failures + 1)
        unseen = [uid for uid in counted if uid not in visible][-status.REMEMBERED :]
        return replace(memory, roles=roles, counted=tuple(uid for uid in counted if uid in visible or uid in unseen))

    def _again(self, memory: Memory, verdict: Verdict) -> Memory:
        """The memory with a new attempt for each role with an ended replica whose retry is due."""
        roles, texts = dict(memory.roles), []
        failed = any(replica.end and not replica.end.disrupted for replica in self.replicas)
        for replica in self.replicas:
            end, role = replica.end, roles.get(replica.slot.role)
            if end is None or role is None or (replica.child and replica.child.attempt < role.attempt):
                continue
            texts.append(
                f"{verdicts.end_text(replica, end)}; {'disrupted' if end.disrupted else 'retryable'}, tried again"
            )
            if verdict.stage == "Suspended" or (self.job.whole_again() and failed and end.disrupted):
                continue  # in a gang that has a failure, only the failure's back-off counts
            if (due := self._retry_at(end, role, memory)) > self.now:
                self.whens.append(due)
            elif self.job.kind.restarts == "slot":
                self.due.append(replica)
            else:
                again = roles if self.job.whole_again() else (replica.slot.role,)
                roles |= {name: replace(roles[name], attempt=memory.role(name).attempt + 1) for name in again}
        if (lost := self._lost(memory)) and verdict.stage != "Suspended" and not failed:
            texts.append(f"{lost} has lost its Job: all are made again")
            roles |= {name: replace(roles[name], attempt=memory.role(name).attempt + 1) for name in roles}
        self.conditions.set("Restarting", bool(texts), "ReplicaEnded" if texts else "Restarted", "; ".join(texts))
        return replace(memory, roles=roles)

    def _lost(self, memory: Memory) -> str:
        """The replica of a gang whose Job somebody else has deleted, "" when there is none. Its orphaned pod shows
        that; if the pod is gone before the next pass, too, only that Job is created again (S19)."""
        if not self.job.whole_again():
            return ""
        empty = {replica.slot for replica in self.replicas if replica.child is None}
        for pod in self.family.orphans:
            current = pod.phase != "Succeeded" and pod.attempt == memory.role(pod.role).attempt
            if current and Slot(pod.role, pod.index) in empty:
                return f"{pod.role} {pod.index}"
        return ""

    def _retry_at(self, end: End, role: RoleMemory, memory: Memory) -> float:
        together = memory.roles.values() if self.job.whole_again() else (role,)
        failures = sum(one.failures for one in together)
        return policy.retry_at(self.job, end, failures, role.attempt - memory.resumes, self.now)

    def _refused(self, verdict: Verdict, memory: Memory) -> Verdict | None:
        """Writes that the API server refused: an invalid child ends the job, others are reported and retried.

        In a role that follows edits, an invalid child does not end a job that has run. While the job is suspended no
        child is created, so earlier refused creates are not reported.
        """
        asks = verdict.stage != "Suspended"
        creates = changes.missing(replace(self.job, memory=memory), self.family) if asks else []
        wanted = {create.ref: create for create in creates}
        made = {ref: one for ref, one in self.seen.refused.items() if one.verb == "create"}
        refused = {ref: one for ref, one in made.items() if ref in wanted}
        for ref, refusal in refused.items():
            slot = wanted[ref].slot
            if refusal.invalid and not (memory.ran and slot and self.job.kind.follows(slot.role)):
                return verdicts.invalid(refusal, f"{ref.kind} {ref.name}", memory.ran)
        clashes = {ref: one for ref, one in refused.items() if one.code == 409}
        others = {ref: one for ref, one in refused.items() if one.code != 409}
        if len(made) < len(self.seen.refused):
            deletes, patches, _ = self._all_changes(verdict, replace(self.job, memory=memory))
            writes: list[Delete | Patch] = [*deletes, *patches]
            due = {(one.ref, changes.verb(one)) for one in writes}
            others |= {ref: one for ref, one in self.seen.refused.items() if (ref, one.verb) in due}
        reasons = {one.policy or one.reason or "Refused" for one in others.values()}
        self.conditions.set("NameConflict", bool(clashes), "NameTaken" if clashes else "NameFree", _said(clashes))
        podless = self._podless(memory)
        overdue = self._overdue(replace(self.job, memory=memory), creates)
        text = "; ".join(filter(None, (_said(others), podless, overdue)))
        reason = min(reasons) if reasons else "NoPod" if podless else "PodTerminating" if overdue else "Unblocked"
        self.conditions.set("Blocked", bool(text), reason, text)
        return None

    def _write(self, verdict: Verdict, memory: Memory) -> Plan:
        job = self.job
        after = replace(job, memory=memory)
        self._say(verdict, memory)
        memory = replace(memory, conditions=tuple(self.conditions.all))
        if verdict.over:
            memory = replace(memory, completion=self.now, counted=())
        deletes, patches, creates = self._changes(verdict, after)
        gone = frozenset(delete.uid for delete in deletes) if verdict.over else frozenset()
        tally = _tally(job, self.replicas, verdict, gone)
        again = restarts.count(after, self.replicas, self.family)
        new = status.written(job, memory, verdict, tally, again, self.replicas)
        if not verdict.over:
            self.whens.append(policy.deadline_at(job, memory.start))
        else:
            self.whens = [policy.expires_at(job, self.now)]
        return Plan(
            status=new,
            status_changed=new != job.memory.wire,
            spec_patch=None if verdict.over else _spec_patch(job),
            deletes=tuple(deletes),
            patches=tuple(patches),
            creates=tuple(creates),
            events=self._events([*creates, *deletes]),
            after=min((when for when in self.whens if when is not None), default=None),
            urgent=status.is_urgent(job.memory.wire, new),
        )

    def _events(self, writes: list[Create | Delete]) -> tuple[Event, ...]:
        """The events of this pass: for conditions first, then for new failures, then for creates and deletes."""
        speech = self.job.kind.speech
        announce = speech.announce or (lambda job, said: status.event_of(said))
        told = [event for said in self.conditions.said if (event := announce(self.job, said))]
        facts = (*self.failed, *writes)
        return (*told, *(event for fact in facts for event in speech.tell(self.job, fact)))

    def _changes(self, verdict: Verdict, after: Job) -> tuple[list[Delete], list[Patch], list[Create]]:
        """The writes that are due now; a refused write waits for its back-off."""
        deletes, patches, creates = self._all_changes(verdict, after)
        return self._due(deletes), self._due(patches), self._due(creates)

    def _due(self, writes: list[changes.W]) -> list[changes.W]:
        due, later = changes.sent_now(writes, self.seen, self.now)
        self.whens.append(later)
        return due

    def _all_changes(self, verdict: Verdict, after: Job) -> tuple[list[Delete], list[Patch], list[Create]]:
        lost, when = changes.lost(after, self.family, self.now)
        self.whens.append(when)
        if verdict.over:
            clean = changes.cleaning(after, verdict.reason)
            deletes, patches = changes.sweep(after, self.family, clean, verdict.reason)
            return lost + deletes, patches, []
        if verdict.stage == "Suspended":
            deletes, patches = changes.sweep(after, self.family, "Running", verdict.reason, True)
            return lost + deletes + changes.not_while_suspended(after, self.family, verdict.reason), patches, []
        creates = changes.startable(after, self.family, changes.missing(after, self.family), self.seen)
        deletes, patches = changes.edited(after, self.family, self.seen)
        for replica in self.replicas:
            resume = after.carrier(replica.slot.role).resume(after, replica)
            patches += [resume] if resume else []
        deletes = [*lost, *changes.unwanted(after, self.family), *changes.ended(after, self.due), *deletes]
        return deletes, patches, creates

    def _say(self, verdict: Verdict, memory: Memory) -> None:
        job, conditions = self.job, self.conditions
        if verdict.stage != "Invalid":
            count = sum(role.replicas for role in job.roles)
            conditions.set("Created", True, "JobCreated", f"the job is accepted, with {count} replicas")
        suspended = verdict.stage == "Suspended"
        reason, text = (verdict.reason, verdict.message) if suspended else ("JobResumed", "")
        conditions.set("Suspended", suspended, reason, text)
        runs = not verdict.over and any(replica.state == "Running" for replica in self.replicas)
        text = "; ".join(["at least one replica runs" if runs else verdict.message, *_stuck(self.replicas)])
        conditions.set("Running", runs, "JobRunning" if runs else verdict.reason, text)
        judged = job.kind.judged(job)
        lost = [r for r in self.replicas if r.state == "Failed" and r.slot not in judged]
        texts = [f"{r.slot.role} {r.slot.index} has given up: {r.why}" for r in lost]
        beside = _beside(job, self.family)
        reason = "ReplicaFailed" if lost else "DeploymentUnavailable" if beside else "Restored"
        conditions.set("Degraded", bool(lost or beside) and not verdict.over, reason, "; ".join([*texts, *beside]))
        reason, text = _edited(job, memory)
        conditions.set("SpecChangeIgnored", bool(text), reason, text)
        unknown = ", ".join(job.wanted.unknown)
        text = f"not known here, and not looked at: {unknown}" if unknown else ""
        conditions.set("UnknownFields", bool(unknown), "UnknownFields", text)
        if verdict.over:
            for passing in ("Restarting", "Blocked", "NameConflict"):
                conditions.set(passing, False, verdict.reason, "")
            end = "Succeeded" if verdict.stage == "Succeeded" else "Failed"
            conditions.set(end, True, verdict.reason, verdict.message)

    def _podless(self, memory: Memory) -> str:
        """The text when the controller of a child has created no pod for PODLESS_SECONDS; its events say why.

        The time counts from the newest pod, so that a job whose thousand pods come one after another is not reported,
        and never from before the job was resumed.
        """
        waits = [r for r in self.replicas if r.why == NO_POD and r.child is not None]
        if not waits or memory.start is None:
            return ""
        pods = (pod.created for pods in self.family.pods.values() for pod in pods)
        when = max(memory.start, *(r.child.created for r in waits if r.child), *pods) + PODLESS_SECONDS
        if self.now < when:
            self.whens.append(when)
            return ""
        slot, child = waits[0].slot, waits[0].child
        name = f"{child.kind} {child.name}" if child else ""
        return f"{slot.role} {slot.index} waits: {name} has no pod, and its events say why"

    def _overdue(self, job: Job, creates: list[Create]) -> str:
        """The text when a new attempt waits for an older pod that is in Terminating long past its grace period."""
        owners = {child.uid for child in changes.older_pods(job, self.family)} if creates else set()
        every = (*self.family.orphans, *(pod for pods in self.family.pods.values() for pod in pods)) if owners else ()
        late = [pod for pod in every if pod.doomed and {pod.uid, pod.owner} & owners]
        if not late:
            return ""
        pod = min(late, key=lambda one: (one.doomed, one.name))
        if self.now < pod.doomed + PODLESS_SECONDS:
            self.whens.append(pod.doomed + PODLESS_SECONDS)
            return ""
        return (
            f"a new attempt waits for Pod {pod.name} of attempt {pod.attempt}, which should have ended at "
            f"{format_time(pod.doomed)}: see whether its node answers, set --node-lost-timeout or delete it by force"
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
    waits = [f"{r.slot.role} {r.slot.index} waits: {r.why}" for r in replicas if r.why in STUCK and r.end is None]
    return waits[:3]


def _beside(job: Job, family: Family) -> list[str]:
    """Why a Deployment of the job is not available; at most one text."""
    if DEPLOYMENT not in job.kind.owns:
        return []
    names = {ref.name: child for ref, child in family.by_ref.items() if ref.kind == DEPLOYMENT.kind}
    texts = [f"Deployment {name}: {one.reason}: {one.message}" for name, one in names.items() if one.reason]
    for pod in family.orphans if names and not texts else ():
        waits = [pod.reason, *(one.reason for one in containers(pod) if one.state == "waiting")]
        if pod.index < 0 and not pod.deleting and (why := next((one for one in waits if one in STUCK), "")):
            texts.append(": ".join(filter(None, (f"Pod {pod.name}", why, pod.message))))
    return texts[:1]


def _after_the_end(job: Job, family: Family, seen: Seen, now: float) -> Plan:
    """The plan of a finished job: its status never changes; its children are cleaned up, and the TTL deletes it."""
    old = job.memory
    expires = policy.expires_at(job, old.completion)
    if expires is not None and now >= expires:
        text = f"finished {job.policy.ttl} s ago (ttlSecondsAfterFinished)"
        gone = Delete(job.kind.gvk, job.key.name, job.uid, text)
        due, again = changes.sent_now([gone], seen, now)
        told = job.kind.speech.tell(job, gone) if due else ()
        return Plan(old.wire, deletes=tuple(due), events=told, after=again)
    reason = next((str(c.get("reason")) for c in old.conditions if c.get("type") == old.end), "")
    lost, when = changes.lost(job, family, now)
    swept, patches = changes.sweep(job, family, changes.cleaning(job, reason), reason)
    deletes, later = changes.sent_now(lost + swept, seen, now)
    patches, again = changes.sent_now(patches, seen, now)
    after = min((one for one in (expires, when, later, again) if one is not None), default=None)
    return Plan(old.wire, deletes=tuple(deletes), patches=tuple(patches), after=after)


def _spec_patch(job: Job) -> Json | None:
    """The merge patch that stores what the schema cannot default; sent once, before the first status (S29)."""
    if job.memory.wire.get("conditions"):
        return None
    spec = job.wire.get("spec")
    stored = spec if isinstance(spec, dict) else {}
    return {key: value for key, value in job.wanted.spec.items() if stored.get(key) != value} or None


def _tally(job: Job, replicas: list[Replica], verdict: Verdict, gone: frozenset[str]) -> dict[str, dict[str, int]]:
    """Count the replicas of each role by state. The final tally is never updated: what is deleted now is Unknown."""
    tally: dict[str, dict[str, int]] = {role.name: {} for role in job.roles}
    for replica in replicas:
        states, state = tally[replica.slot.role], replica.state
        if verdict.over and replica.end is not None and not replica.end.disrupted and state != "Succeeded":
            state = "Failed"  # it is not retried any more
        elif state in ("Starting", "Running") and replica.child and replica.child.uid in gone:
            state = "Unknown"
        states[state] = states.get(state, 0) + (replica.running if state == "Running" else 1)
    return tally


def _said(refused: dict[Ref, Refusal]) -> str:
    return "; ".join(f"{ref.kind} {ref.name}: {refusal.message}" for ref, refusal in sorted(refused.items())[:3])


def _edited(job: Job, memory: Memory) -> tuple[str, str]:
    """Reason and message of condition SpecChangeIgnored; the message is "" when no edit is ignored (S1, S11)."""
    if memory.suspended and memory.started and not job.policy.suspend:
        return "InvalidSpec", f"{job.wanted.problems[0]}: the job stays suspended until that is mended"
    edits = changed(job.kind, job.wanted, job.memory) if is_fixed(job.wanted, job.memory) else []
    if not edits:
        return "SpecRestored", ""
    fix = "the job has started and goes on as it was; suspend it, edit it and resume it, or make a new job"
    return "JobStarted", f"{'; '.join(edits)}: {fix}"
