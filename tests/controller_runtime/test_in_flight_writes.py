"""Our own writes on their way: when we stop waiting, the store really holds them; and we do stop."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from trainyard.controller_runtime.in_flight_writes import SWEEP_AT, AcknowledgedWrite, InFlightWrites
from trainyard.controller_runtime.object_adapter import ObjectAdapter
from trainyard.controller_runtime.reflector import Changed, Moved, Replaced
from trainyard.controller_runtime.store import Store
from trainyard.objects import Key

pytestmark = pytest.mark.slow

JOB = "job-uid"
PODS = "pods"


class Pod(NamedTuple):
    name: str
    uid: str
    revision: int
    going: bool = False


PODS_VIEW: ObjectAdapter[Pod] = ObjectAdapter(
    decode=lambda raw: Pod(raw.decode(), "", 0),
    key=lambda pod: Key("n", pod.name),
    uid=lambda pod: pod.uid,
    revision=lambda pod: str(pod.revision),
    index=lambda pod: JOB,
    deleting=lambda pod: pod.going,
)
NAMES = st.sampled_from("abc")


class OwnWrites(RuleBasedStateMachine):
    """We write, others write, and a watch brings it all later, or a relist skips what was in between."""

    def __init__(self) -> None:
        super().__init__()
        self.revision = 1
        self.world: dict[str, Pod] = {}
        self.log: list[tuple[str, Pod]] = []
        self.told = 0
        self.store: Store[Pod] = Store(PODS_VIEW)
        self.store.apply(Replaced((), "1"))
        self.writes: InFlightWrites[str] = InFlightWrites({PODS: self.store}, timeout=20.0)
        self.noted: list[AcknowledgedWrite[str]] = []

    def happen(self, verb: str, pod: Pod) -> None:
        if verb == "DELETED":
            self.world.pop(pod.name, None)
        else:
            self.world[pod.name] = pod
        self.log.append((verb, pod))

    def note(self, write: AcknowledgedWrite[str]) -> None:
        self.noted.append(write)
        self.writes.record(JOB, write, 0.0)

    @rule(name=NAMES, ours=st.booleans())
    def create(self, name: str, ours: bool) -> None:
        if name not in self.world:
            self.revision += 1
            pod = Pod(name, f"u{self.revision}", self.revision)
            self.happen("ADDED", pod)
            if ours:
                self.note(AcknowledgedWrite(PODS, pod.uid, str(pod.revision)))

    @rule(name=NAMES, ours=st.booleans())
    def patch(self, name: str, ours: bool) -> None:
        if name in self.world:
            self.revision += 1
            pod = self.world[name]._replace(revision=self.revision)
            self.happen("MODIFIED", pod)
            if ours:
                self.note(AcknowledgedWrite(PODS, pod.uid, str(pod.revision)))

    @rule(name=NAMES, ours=st.booleans(), gracefully=st.booleans())
    def delete(self, name: str, ours: bool, gracefully: bool) -> None:
        if name in self.world:
            self.revision += 1
            pod = self.world[name]._replace(revision=self.revision, going=True)
            self.happen("MODIFIED" if gracefully else "DELETED", pod)
            if ours and self.store.by_uid(pod.uid):  # we delete only what we have seen
                self.note(AcknowledgedWrite(PODS, pod.uid, gone=True))

    @precondition(lambda self: self.told < len(self.log))
    @rule()
    def line(self) -> None:
        verb, pod = self.log[self.told]
        self.told += 1
        self.store.apply(Changed(verb, pod, str(pod.revision)))

    @rule()
    def relist(self) -> None:
        self.told = len(self.log)
        self.store.apply(Replaced(tuple(self.world.values()), str(self.revision)))

    @precondition(lambda self: self.told == len(self.log))
    @rule()
    def bookmark(self) -> None:
        self.store.apply(Moved(str(self.revision)))

    @invariant()
    def not_waiting_means_that_every_write_has_been_seen(self) -> None:
        if self.writes.has_pending(JOB):
            assert self.told < len(self.log), "everything has been told, and still we wait"
            return
        seen = self.log[: self.told]
        for write in self.noted:
            of_it = [pod for _, pod in seen if pod.uid == write.uid]
            if write.gone:
                assert of_it[-1].going or self.store.by_uid(write.uid) is None
            else:
                assert of_it and int(write.revision) <= max(pod.revision for pod in of_it)


TestOwnWrites = OwnWrites.TestCase
TestOwnWrites.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


@pytest.fixture
def store() -> Store[Pod]:
    made: Store[Pod] = Store(PODS_VIEW)
    made.apply(Replaced((), "5"))
    return made


def test_what_does_not_arrive_is_listed_again_and_a_list_ends_the_wait(store: Store[Pod]) -> None:
    writes: InFlightWrites[str] = InFlightWrites({PODS: store}, timeout=20.0)
    writes.record(JOB, AcknowledgedWrite(PODS, "lost", "9"), 100.0)
    assert writes.has_pending(JOB) and writes.deadline(JOB) == 120.0
    assert writes.overdue(JOB, 119.9) == set()
    assert writes.overdue(JOB, 120.0) == {PODS}
    assert writes.deadline(JOB) == 140.0  # it is not listed again at once
    assert writes.has_pending(JOB)
    store.apply(Replaced((), "opaque-revision"))
    assert not writes.has_pending(JOB) and writes.deadline(JOB) is None


def test_a_list_before_the_time_out_proves_nothing_when_revisions_are_opaque(store: Store[Pod]) -> None:
    writes: InFlightWrites[str] = InFlightWrites({PODS: store}, timeout=20.0)
    writes.record(JOB, AcknowledgedWrite(PODS, "new", "opaque-b"), 100.0)
    store.apply(Replaced((), "opaque-a"))
    assert writes.has_pending(JOB)
    store.apply(Changed("ADDED", Pod("a", "new", 0)._replace(), "opaque-c"))
    assert writes.has_pending(JOB)  # there, but with another revision than the one we made


def test_jobs_wait_for_their_own_writes_only(store: Store[Pod]) -> None:
    writes: InFlightWrites[str] = InFlightWrites({PODS: store})
    writes.record(JOB, AcknowledgedWrite(PODS, "one", "9"), 0.0)
    assert writes.has_pending(JOB) and not writes.has_pending("another")
    writes.forget(JOB)
    assert not writes.has_pending(JOB)


def test_writes_that_the_stores_show_are_forgotten_although_nobody_asks_for_their_job(store: Store[Pod]) -> None:
    """Found by a soak: a job that is gone is not reconciled any more."""
    writes: InFlightWrites[str] = InFlightWrites({PODS: store})
    writes.record("waits", AcknowledgedWrite(PODS, "late", "999999"), 0.0)
    for number in range(1000):
        writes.record(f"job-{number}", AcknowledgedWrite(PODS, f"pod-{number}", gone=True), 0.0)
    assert len(writes._in_flight) <= 2 * SWEEP_AT and writes.has_pending("waits")
