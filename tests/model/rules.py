"""What must hold in every world, after every step, and when a world has come to rest.

Each rule is one short sentence; the first that is broken is told, with the shortest story that leads there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.model.executor_model import rendezvous, succeeded_slots, too_many, unsized
from tests.model.plan_cache import PlanCache, Snapshot, WorldFacts
from tests.model.world import Batch, Pod, Set, World, fills
from trainyard.objects import Json
from trainyard.objects.no_progress import PROGRESS_DEADLINE
from trainyard.objects.resources import SERVICE


def after_step(cache: PlanCache, before: World, after: World) -> str:
    """The rule that one step broke, or ""."""
    if before.children != after.children and (text := _side_by_side(cache, after)):
        return text
    if before.status == after.status:
        return ""
    old, new = cache.facts(before.status), cache.facts(after.status)
    if old.end:
        return f"the job left {old.end}"
    if any(-1 < now < then for then, now in zip(old.attempts, new.attempts, strict=True)):
        return "an attempt went backwards"
    if any(now < then for then, now in zip(old.failures, new.failures, strict=True)) and _same_roles(old, new):
        return "a count of failures went backwards"
    if new.resumes < old.resumes:
        return "the count of resumes went backwards"
    if new.resumes > old.resumes and new.attempts[0] == old.attempts[0]:
        return "a resume without a new attempt"
    if cache.scenario.gang and len(set(new.attempts)) > 1:
        return "the gang is not of one attempt"
    if cache.scenario.gang and _is_new_attempt(old, new) and not before.truth.lost:
        return "the gang was made again although it had lost nothing"
    if cache.scenario.styles[0] == "retrying" and new.resumes == old.resumes and new.attempts[0] > old.attempts[0] > -1:
        return "what tries again by itself was made again although nobody resumed the job"
    for counts in range(len(new.failures)):
        if new.failures[counts] > _most(after, counts):
            return "a failure was counted twice, or one that was none"
    if text := _wrong_causes(cache, before, old, new):
        return text
    if not (new.end or new.suspended) and _beyond_restart_limit(cache, after):
        return "it goes on beyond restart-limit"
    return _false_end(cache, after, new) if new.end else ""


def _wrong_causes(cache: PlanCache, before: World, old: WorldFacts, new: WorldFacts) -> str:
    """A disruption or a stall is counted once, with the attempt of a gang that begins after it, by its cause."""
    counted, truth = Counter(dict(new.causes)), before.truth
    counted.subtract(dict(old.causes))
    if min(counted.values(), default=0) < 0:
        return "a count of causes went backwards"
    if not cache.scenario.gang:
        return "" if Counter(dict(new.causes)) <= Counter(truth.causes) else "a cause was counted that was none"
    causes = [cause for cause, times in counted.items() for _ in range(times)]
    failure = cache.failure(0, "", old.attempts[0])
    if not _is_new_attempt(old, new) or failure in truth.must:
        return "a restart was counted that was none, or by two causes" if causes else ""
    if failure not in truth.may and len(causes) != 1:
        return "a restart was not counted by its cause"
    return "" if set(causes) <= set(truth.causes) else "a restart was counted by another cause"


def _beyond_restart_limit(cache: PlanCache, world: World, in_place: int = 0) -> bool:
    """More restarts are made or due within the window than the annotation `restart-limit` allows (S46)."""
    if cache.scenario.restart_limit is None:
        return False
    count, window = cache.scenario.restart_limit
    restarts = sum(time > world.now - window for time in world.truth.restarts)
    return restarts + world.truth.pending + in_place > count


def _side_by_side(cache: PlanCache, world: World) -> str:
    """No pod runs beside an older one of its slot, and none of a gang beside one of an older attempt."""
    live = [pod for pod in world.pods() if pod.live and not pod.orphan]
    if world.view:  # it may not have been seen yet that such a pod is there
        live = [pod for pod in live if not pod.ownerless]
    sets = [style == "set" for style in cache.scenario.styles]
    places = {(pod.slot, pod.number if sets[pod.slot] else 0) for pod in live}
    if len(places) < len(live):
        return "two pods of one replica are alive"
    shown_old = world.view is not None and world.view.restarted  # a real list after a restart is a quorum's
    if cache.scenario.gang and not shown_old and len({pod.attempt for pod in live}) > 1:
        return "pods of two attempts of a gang are alive"
    return ""


def _is_new_attempt(old: WorldFacts, new: WorldFacts) -> bool:
    return new.resumes == old.resumes and new.attempts[0] > old.attempts[0] > -1


def _same_roles(old: WorldFacts, new: WorldFacts) -> bool:
    return [attempt < 0 for attempt in old.attempts] == [attempt < 0 for attempt in new.attempts]


def _most(world: World, counts: int) -> int:
    return sum(by == counts for by, _ in (*world.truth.must, *world.truth.may))


def _false_end(cache: PlanCache, world: World, facts: WorldFacts) -> str:
    """An end that reality does not support."""
    truth, spec = world.truth, cache.policies(world.spec)
    if facts.reason == "JobSucceeded":
        succeeds = cache.scenario.succeeds(frozenset(truth.done), cache.wants(world.spec))
        return "" if succeeds else "the job succeeded although the MASTER did not"
    if facts.reason == "PermanentFailure":
        return "" if truth.permanent else "the job failed for good although nothing permanent happened"
    if facts.reason == "BackoffLimitExceeded" and not (cache.scenario.styles[0] == "retrying" and truth.permanent):
        return "" if too_many(cache, world, truth.in_place) else "backoffLimit was not exceeded"
    if facts.reason == "DeadlineExceeded":
        deadline = spec.get("activeDeadlineSeconds")
        late = deadline is not None and facts.start is not None and world.now >= facts.start + deadline
        return "" if late else "the deadline was not over"
    if facts.reason == "RestartLimitExceeded":
        return "" if _beyond_restart_limit(cache, world, truth.in_place) else "restart-limit was not exceeded"
    return "" if facts.reason == "BackoffLimitExceeded" else f"an end for no reason: {facts.reason}"


def at_rest(cache: PlanCache, world: World) -> str:
    """The rule that a world at rest breaks, or ""."""
    act = cache.planned_writes(world, Snapshot.of(world))
    # One that is never read is tried again whenever what is created after it is, until that is no longer refused.
    again = {make.kind for make in act.creates} <= cache.never_read and act.status == world.status
    if not act.idle and not (again and not (act.spec_patch or act.deletes or act.patches)):
        return "it never settles"
    facts, spec = cache.facts(world.status), cache.policies(world.spec)
    if any(pod.orphan for pod in world.pods()):
        return "a pod was left behind without its Job"
    if world.deleting:
        return ""
    return next((text for text in _wrong(cache, world, facts, spec) if text), "")


def _wrong(cache: PlanCache, world: World, facts: WorldFacts, spec: Json) -> Iterator[str]:
    running = [pod for pod in world.pods() if pod.phase == "Running"]
    if facts.end:
        yield _uncleaned(cache, world, facts, spec)
        if spec.get("ttlSecondsAfterFinished") is not None:
            yield "a finished job outlives its time to live"
        return
    for counts, failures in enumerate(facts.failures):
        if failures < sum(by == counts for by, _ in world.truth.must):
            yield "a failure was never counted"
    if too_many(cache, world, sum(pod.restarts for pod in running)):
        yield "it goes on beyond backoffLimit"
    if spec.get("suspend") is True:
        yield "a pod runs in a suspended job" if running else ""
        yield "" if "Suspended" in facts.true else "a suspended job does not say so"
        return
    if spec.get("activeDeadlineSeconds") is not None:
        yield "the job outlives its deadline"
    yield (
        "restarts in place go on beyond restart-limit"
        if _beyond_restart_limit(cache, world, world.truth.in_place)
        else ""
    )
    stalled = [pod for pod in running if pod.stalled]
    if cache.scenario.restarts_on_stall:
        yield "a stalled job was not restarted" if stalled else ""
    elif PROGRESS_DEADLINE in cache.scenario.annotations:
        is_stalled = len(stalled) == len(running) > 0
        yield (
            ""
            if is_stalled == ("Stalled" in facts.true)
            else "a job is stalled and does not say so, or says so and is not"
        )
    if facts.suspended:
        yield "the job was resumed and says that it is suspended"
    wants = cache.wants(world.spec)
    uids = tuple(sorted(obj.uid for obj in world.holders() if obj.slot in wants))
    if world.truth.met and uids != world.truth.met:
        yield "a gang that had run goes on with another replica"
    for slot in wants:
        yield _misplaced(cache, world, facts, slot)
    if any(fills(obj) and obj.slot not in wants for obj in world.children):  # type: ignore[union-attr]  # no OtherChild fills
        yield "a replica stays that the spec does not have"
    yield _misfitting(cache, world, facts)
    if cache.is_running(world) and "Running" not in facts.true:
        yield "a replica runs and status does not say so"


def _uncleaned(cache: PlanCache, world: World, facts: WorldFacts, spec: Json) -> str:
    stopped = cache.scenario.limits_stop and facts.reason in ("BackoffLimitExceeded", "DeadlineExceeded")
    clean = spec.get("cleanPodPolicy") or cache.scenario.clean
    never_read = cache.never_read  # garbage collection deletes these with the job
    ours = [
        obj
        for obj in world.children
        if isinstance(obj, Batch | Set | Pod) or not (obj.foreign or obj.kind in never_read)
    ]
    if clean == "All":
        return "cleanPodPolicy All left something" if ours else ""
    if clean == "Running" or stopped:
        live = any(pod.live for pod in world.pods())
        return "something runs on after the end" if live else ""
    if any(pod.live and pod.slot not in facts.has for pod in world.pods()):
        return "what the job had given up runs on after its end"
    if any(not worker_set.replicas and worker_set.slot in facts.has for worker_set in world.sets()):
        return "a StatefulSet was stopped although cleanPodPolicy is None"
    return ""


def _misplaced(cache: PlanCache, world: World, facts: WorldFacts, slot: int) -> str:
    """A replica of a job at rest runs in its current attempt, or has ended well, or its name is somebody else's."""
    holder = world.holder(slot)
    if holder is None:
        if not cache.scenario.awaits(slot) <= succeeded_slots(cache, world):
            return ""
        held = "NameConflict" in facts.true and (cache.scenario.resource(slot), cache.names[slot]) in cache.held(world)
        fixed = slot in cache.scenario.fixed and "SpecChangeIgnored" in facts.true
        return "" if held or fixed else "a replica is missing"
    current = holder.attempt == facts.attempts[slot]
    if isinstance(holder, Set):
        return _misshapen(cache, world, holder) if current else "a StatefulSet is of an older attempt"
    pods = [holder] if isinstance(holder, Pod) else world.pods(holder.uid)
    if cache.scenario.gang and not current:
        return "a replica is of an older attempt"
    if _ended_well(world, holder):
        succeeded = frozenset(obj.slot for obj in world.holders() if _ended_well(world, obj))
        all_well = slot in cache.scenario.deciding and cache.scenario.succeeds(succeeded, cache.wants(world.spec))
        return "the MASTER has ended well and the job has not" if all_well else ""
    if not current:
        return "a replica is of an older attempt"
    if slot in cache.scenario.ignored and isinstance(holder, Pod) and holder.phase == "Failed" and not holder.disrupted:
        return "" if "Degraded" in facts.true else "a replica has failed for good and status does not say so"
    return "" if any(pod.phase == "Running" for pod in pods) else "a replica does not run"


def _ended_well(world: World, child: Batch | Set | Pod) -> bool:
    if isinstance(child, Pod):
        return child.phase == "Succeeded"
    pods = world.pods(child.uid)
    return isinstance(child, Batch) and (child.phase == "Complete" or any(pod.phase == "Succeeded" for pod in pods))


def _misshapen(cache: PlanCache, world: World, workers: Set) -> str:
    wanted = cache.body(world, workers.slot, workers.attempt)
    if cache.value(workers.body) != unsized(wanted):
        return "a StatefulSet is not what the spec says"
    if workers.replicas != wanted["spec"]["replicas"]:
        return "a StatefulSet has not the size that the spec says"
    runs = sum(pod.phase == "Running" for pod in world.pods(workers.uid))
    return "" if runs == workers.replicas else "a replica does not run"


def _misfitting(cache: PlanCache, world: World, facts: WorldFacts) -> str:
    """The extras of a job at rest are those it has, and what they would be if they were made now.

    A spec that is not followed does not say which are not needed any more.
    """
    wanted = cache.extras(world)
    violations = {
        (other_child.kind, other_child.name): other_child
        for other_child in world.other_children()
        if not other_child.foreign
    }
    held = {ref for ref in wanted if "NameConflict" in facts.true and tuple(ref) in cache.held(world)}
    held |= {ref for ref in wanted if ref.kind in cache.never_read}  # nothing shows that another client deleted it
    if missing := sorted(wanted.keys() - violations.keys() - held):
        return f"the {missing[0].kind} is missing"
    surplus = sorted(violations.keys() - wanted.keys())
    if surplus and "SpecChangeIgnored" not in facts.true:
        return f"the {surplus[0][0]} stays although the spec does not have it any more"
    for ref, body in wanted.items():
        if cache.scenario.bodies and ref in violations and cache.value(violations[ref].body) != body:
            return f"the {ref.kind} {ref.name} is not what the spec says"
    if cache.scenario.styles[0] == "alone" and SERVICE in cache.scenario.kind.roles.child_resources:
        names = {name for kind, name in violations if kind == "Service"}
        if (
            not held
            and not cache.scenario.one_service
            and names != {cache.names[slot] for slot in cache.wants(world.spec)}
        ):
            return "the Services are not those of the workers"
        if len({rendezvous(cache, pod.body) for pod in world.pods() if pod.live}) > 1:
            return "the workers meet in different places"
    return ""
