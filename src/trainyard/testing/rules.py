"""What must hold in every world, after every step, and when a world has come to rest.

Each rule is one short sentence; the first that is broken is told, with the shortest story that leads there.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.objects import Json
from trainyard.testing.book import Book, Facts, Sight
from trainyard.testing.obeying import too_many
from trainyard.testing.world import Batch, Pod, World


def after_step(book: Book, before: World, after: World) -> str:
    """The rule that one step broke, or ""."""
    if before.status == after.status:
        return ""
    old, new = book.facts(before.status), book.facts(after.status)
    if old.end:
        return f"the job left {old.end}"
    if any(now < then for then, now in zip(old.attempts, new.attempts, strict=True)):
        return "an attempt went backwards"
    if any(now < then for then, now in zip(old.failures, new.failures, strict=True)):
        return "a count of failures went backwards"
    if new.resumes < old.resumes:
        return "the count of resumes went backwards"
    if new.resumes > old.resumes and new.attempts[0] == old.attempts[0]:
        return "a resume without a new attempt"
    for slot in range(3):
        if new.failures[slot] > _most(after, slot):
            return "a failure was counted twice, or one that was none"
    return _false_end(book, after, new) if new.end else ""


def _most(world: World, slot: int) -> int:
    return sum(one == slot for one, _ in (*world.truth.must, *world.truth.may))


def _false_end(book: Book, world: World, facts: Facts) -> str:
    """An end that reality does not support."""
    truth, spec = world.truth, book.value(world.spec)
    if facts.reason == "JobSucceeded":
        return "" if truth.succeeded else "the job succeeded although the MASTER did not"
    if facts.reason == "PermanentFailure":
        return "" if truth.permanent else "the job failed for good although nothing permanent happened"
    if facts.reason == "BackoffLimitExceeded":
        return "" if too_many(facts, spec, truth.in_place) else "backoffLimit was not exceeded"
    if facts.reason == "DeadlineExceeded":
        deadline = spec.get("activeDeadlineSeconds")
        late = deadline is not None and facts.start is not None and world.now >= facts.start + deadline
        return "" if late else "the deadline was not over"
    return f"an end for no reason: {facts.reason}"


def at_rest(book: Book, world: World) -> str:
    """The rule that a world at rest breaks, or ""."""
    if not book.act(world, Sight.of(world)).idle:
        return "it never settles"
    facts, spec = book.facts(world.status), book.value(world.spec)
    if any(pod.orphan for pod in world.pods()):
        return "a pod was left behind without its Job"
    if world.deleting:
        return ""
    return next((text for text in _wrong(book, world, facts, spec) if text), "")


def _wrong(book: Book, world: World, facts: Facts, spec: Json) -> Iterator[str]:
    running = [pod for pod in world.pods() if pod.phase == "Running"]
    if facts.end:
        yield _uncleaned(world, facts, spec)
        if spec.get("ttlSecondsAfterFinished") is not None:
            yield "a finished job outlives its time to live"
        return
    for slot in range(3):
        must = sum(one == slot for one, _ in world.truth.must)
        if facts.failures[slot] < must:
            yield "a failure was never counted"
    if too_many(facts, spec, sum(pod.restarts for pod in running)):
        yield "it goes on beyond backoffLimit"
    if spec.get("suspend") is True:
        yield "a pod runs in a suspended job" if running else ""
        yield "" if "Suspended" in facts.true else "a suspended job does not say so"
        return
    if spec.get("activeDeadlineSeconds") is not None:
        yield "the job outlives its deadline"
    if facts.suspended:
        yield "the job was resumed and says that it is suspended"
    for slot in range(len(spec["replicaSpecs"])):
        yield _misplaced(world, facts, slot)
    names = {thing.kind for thing in world.things() if not thing.foreign}
    yield "" if "Service" in names else "the Service is missing"
    if running and "Running" not in facts.true:
        yield "a replica runs and status does not say so"


def _uncleaned(world: World, facts: Facts, spec: Json) -> str:
    stopped = facts.reason in ("BackoffLimitExceeded", "DeadlineExceeded")
    clean = spec.get("cleanPodPolicy")
    ours = [kid for kid in world.kids if isinstance(kid, Batch) or not (isinstance(kid, Pod) or kid.foreign)]
    if clean == "All":
        return "cleanPodPolicy All left something" if ours else ""
    if clean == "Running" or stopped:
        live = any(pod.live for pod in world.pods())
        return "something runs on after the end" if live else ""
    return ""


def _misplaced(world: World, facts: Facts, slot: int) -> str:
    """A replica of a job at rest runs in its current attempt, or has ended well, or its name is somebody else's."""
    job = world.batch(slot)
    if job is None:
        held = slot == 1 and "NameConflict" in facts.true
        fixed = slot == 1 and "SpecChangeIgnored" in facts.true
        return "" if held or fixed else "a replica is missing"
    pods = world.pods(job.uid)
    if job.phase == "Complete" or any(pod.phase == "Succeeded" for pod in pods):
        return "" if slot else "the MASTER has ended well and the job has not"
    if job.attempt != facts.attempts[slot]:
        return "a replica is of an older attempt"
    return "" if any(pod.phase == "Running" for pod in pods) else "a replica does not run"
