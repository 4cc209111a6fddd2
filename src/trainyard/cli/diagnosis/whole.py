"""What the job itself says: its metadata, spec and conditions."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.cli.diagnosis.children import done_without_pods, missing, next_look
from trainyard.cli.diagnosis.facts import BLOCK, END, FINE, NOTE, WAIT, Facts, Finding
from trainyard.cli.diagnosis.replicas import failed
from trainyard.cli.view import age, clock, ended
from trainyard.core.policies.managed_by import is_managed_here
from trainyard.objects import format_time, parse_time

ENDED = "status.conditions[Failed]"
PATIENCE = 10.0  # seconds in which an operator looks at a new job
KNOWN = frozenset({"Created", "Running", "Suspended", "Succeeded", "Failed", "Complete", "Restarting"})

FIXES = {
    "DeadlineExceeded": "raise spec.activeDeadlineSeconds, or make the job faster; then make the job again",
    "BackoffLimitExceeded": "mend what fails (below), or raise spec.backoffLimit; then make the job again",
    "InvalidSpec": "mend the spec and make the job again; `trainyard lint` shows every problem",
    "InvalidChild": "mend the template of that replica and make the job again",
    "PermanentFailure": "mend the program or its arguments and make the job again",
}
ALARMS = {
    "NameConflict": (BLOCK, "an object that is not this job's holds the name of one of its children"),
    "Blocked": (BLOCK, "the API server does not take one of its children, or makes no pod for it"),
    "Degraded": (BLOCK, "a replica has given up, and the job cannot get it back"),
    "DeploymentUnavailable": (NOTE, "what stands beside its replicas, such as TensorBoard, does not run"),
    "SpecChangeIgnored": (NOTE, "an edit of its spec is not followed"),
    "UnknownFields": (NOTE, "its spec has fields that nobody here knows"),
}
ALARM_FIXES = {
    "NameConflict": "delete or rename that object, or give this job another name (or RuntimeId)",
    "DeploymentUnavailable": "mend what the message names (TensorBoard's pod is like MASTER's); the job goes on",
    "Degraded": "see the logs of that replica; mend it and make the job again, or suspend and resume it",
    "SpecChangeIgnored": "suspend the job, edit it and resume it; or make a new job",
    "UnknownFields": "check the spelling; `trainyard lint` names each",
}
BLOCKED_FIXES = {
    "QuotaExceeded": "raise the ResourceQuota of the namespace, free some of it, or ask for less in the template",
    "Forbidden": "give the operator the right that the message names, or mend the name of the ServiceAccount",
    "NotFound": "make what the message names",
    "PodSecurity": "mend in the template what the message lists, or ask for another level of the namespace",
    "AdmissionPolicy": "mend in the template what the policy asks for, or ask whoever keeps that policy",
    "AdmissionWebhook": "mend in the template what the webhook asks for, or ask whoever keeps that webhook",
    "LimitRange": "write requests and limits that `kubectl describe limitranges` allows in the namespace",
    "PodTerminating": "see whether the node of that pod answers; set --node-lost-timeout, or delete the pod by force",
    "NoPod": "see `kubectl describe` of the object that the message names: its events say who refuses the pod",
}


def not_ours(facts: Facts) -> Iterator[Finding]:
    managed_by = facts.read.policy.managed_by
    if not is_managed_here(facts.read):
        what = f"the job is managed by {managed_by}: Trainyard makes no request for it"
        fix = "ask that controller; or make the job again without spec.managedBy"
        yield Finding(BLOCK, what, "spec.managedBy", (), fix)


def going(facts: Facts) -> Iterator[Finding]:
    meta = facts.job["metadata"]
    if since := meta.get("deletionTimestamp"):
        held = ", ".join(meta.get("finalizers") or ())
        fix = f"whoever set {held} must take it away" if held else "nothing: its children go first"
        took = facts.age(since)
        yield Finding(BLOCK, f"the job is being deleted{_for(took)}", "metadata.deletionTimestamp", (), fix)


OWN_CAUSES = frozenset({"DeadlineExceeded", "BackoffLimitExceeded", "InvalidSpec", "InvalidChild"})
"""Reasons of an end that no container's end explains."""


def over(facts: Facts) -> Iterator[Finding]:
    """How it ended. Where a container's end is the cause, that one says it all (`replicas.failed`)."""
    end = ended(facts.kind, facts.job)
    said = facts.holds(end) or {}
    message = str(said.get("message") or facts.status.get("reason") or "")
    if end == "Succeeded":
        start, stop = (parse_time(facts.status.get(name)) for name in ("startTime", "completionTime"))
        took = f", after {clock(stop - start)}" if start is not None and stop is not None else ""
        yield Finding(FINE, f"it succeeded{_ago(facts)}{took}", "status", tuple(filter(None, [message])))
    elif end == "Failed":
        reason = str(said.get("reason") or "")
        ends = list(failed(facts))
        if not ends or reason in OWN_CAUSES:
            what = f"it failed{_ago(facts)}" + (f" ({reason})" if reason else "")
            fix = FIXES.get(reason, "mend what is named here and make the job again")
            yield Finding(END, what, ENDED, tuple(filter(None, [message])), fix)
        yield from ends


def heading(facts: Facts) -> str:
    """What the job is, before all that is said of it."""
    if ended(facts.kind, facts.job) != "Failed":
        return f"{facts.title}:"
    reason = str((facts.holds("Failed") or {}).get("reason") or "")
    return f"{facts.title} failed{_ago(facts)}" + (f" ({reason}):" if reason else ":")


def _ago(facts: Facts) -> str:
    ago = facts.age(facts.status.get("completionTime"))
    return f" {age(ago)} ago" if ago is not None else ""


def unseen(facts: Facts) -> Iterator[Finding]:
    """No operator has looked at it."""
    if facts.status.get("conditions") or facts.status.get("phase"):
        return
    born = facts.age(facts.job["metadata"].get("creationTimestamp"))
    if born is not None and born < PATIENCE:
        yield Finding(WAIT, "it has just been made, and nobody has looked at it yet", "status", (), "wait a moment")
        return
    fix = (
        "see that the operator runs: on this machine `trainyard status` names its log, elsewhere `kubectl get pods -A`"
    )
    evidence = (f"status is empty{_for(born)}",)
    yield Finding(BLOCK, "no operator looks at it", "status", evidence, fix)


def suspended(facts: Facts) -> Iterator[Finding]:
    if said := facts.holds("Suspended"):
        took = facts.age(said.get("lastTransitionTime"))
        if facts.read.policy.suspend:
            yield Finding(BLOCK, f"it is suspended{_for(took)}", "spec.suspend", (), facts.command("resume"))
        else:
            yield Finding(WAIT, "it is being resumed", "status.conditions[Suspended]", (str(said.get("message")),))


def alarms(facts: Facts) -> Iterator[Finding]:
    """Conditions that say what is wrong; those that we do not know, too, in their own words."""
    also = set(facts.kind.messages.condition_aliases.values())
    for one in facts.conditions:
        kind = str(one.get("type"))
        if one.get("status") != "True" or kind in KNOWN or kind in also:
            continue
        if kind == "Blocked" and one.get("reason") == "NoPod" and any(missing(facts)):
            continue  # the object that makes no pod says more
        reason, message = str(one.get("reason") or ""), str(one.get("message") or "")
        level, what = ALARMS.get(reason) or ALARMS.get(kind) or (WAIT, f"its condition {kind} is True")
        fix = ALARM_FIXES.get(reason) or ALARM_FIXES.get(kind, "")
        if kind == "Blocked":
            fix = BLOCKED_FIXES.get(reason, "mend what the message names")
        yield Finding(level, what, f"status.conditions[{kind}], {reason}", tuple(filter(None, [message])), fix)


def ineffective(facts: Facts) -> Iterator[Finding]:
    """Fields that have no effect where the job runs, as `lint` says them."""
    for note in facts.notes:
        yield Finding(NOTE, note.text, note.path)


def retrying(facts: Facts) -> Iterator[Finding]:
    """A replica is made again, and its failed pod, which would say so, is gone."""
    failed_pods = any((pod.get("status") or {}).get("phase") == "Failed" for _, pod in facts.slots)
    if (said := facts.holds("Restarting")) and not failed_pods:
        due = next_look(facts)
        when = f" at {format_time(due)} (in {age(due - facts.now)})" if due is not None else ""
        what = f"a replica has ended and is made again{when}"
        message = tuple(filter(None, [str(said.get("message") or "")]))
        yield Finding(WAIT, what, "status.conditions[Restarting]", message, "wait; its logs say why it ended")


def fine(facts: Facts) -> Iterator[Finding]:
    """Nothing is wrong: what it does, and since when."""
    said = facts.holds("Running")
    running = sum(one.state == "Running" for one, _ in facts.slots)
    done = sum(one.state == "Succeeded" for one, _ in facts.slots) + done_without_pods(facts)
    wanted = max(len(facts.slots), sum(role.replicas for role in facts.read.roles))
    if said is None and not running:
        yield Finding(WAIT, "it is being set up, and nothing is wrong so far", "status", (), "wait a moment")
        return
    since = (said or {}).get("lastTransitionTime") or facts.status.get("startTime")
    ends = f", {done} ended well" if done else ""
    counts = f"{running} of {wanted} replicas run{ends}"
    evidence = deadline_note(facts)
    if running + done < wanted:
        yield Finding(WAIT, f"{counts}; no pod of the others is there yet", "status", evidence, "wait a moment")
        return
    what = f"it runs fine{_for(facts.age(since))}: {counts}"
    yield Finding(FINE, what, "status.conditions[Running]", evidence)


def deadline_note(facts: Facts) -> tuple[str, ...]:
    limit, start = facts.read.policy.deadline, parse_time(facts.status.get("startTime"))
    if limit is None or start is None:
        return ()
    return (f"activeDeadlineSeconds stops it at {format_time(start + limit)}",)


def _for(seconds: float | None) -> str:
    return "" if seconds is None else f" for {age(seconds)}"
