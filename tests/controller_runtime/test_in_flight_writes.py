"""In-flight writes: a write is pending until the store shows it, and every wait ends."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from trainyard.controller_runtime.in_flight_writes import SWEEP_THRESHOLD, AcknowledgedWrite, InFlightWrites
from trainyard.controller_runtime.object_adapter import ObjectAdapter
from trainyard.controller_runtime.reflector import ListReplaced, ObjectChanged, RevisionAdvanced
from trainyard.controller_runtime.store import Store
from trainyard.objects import NamespacedName

pytestmark = pytest.mark.slow

JOB = "job-uid"
PODS = "pods"


class Pod(NamedTuple):
    name: str
    uid: str
    revision: int
    deleting: bool = False


POD_ADAPTER: ObjectAdapter[Pod] = ObjectAdapter(
    decode=lambda raw: Pod(raw.decode(), "", 0),
    key=lambda pod: NamespacedName("n", pod.name),
    uid=lambda pod: pod.uid,
    revision=lambda pod: str(pod.revision),
    index=lambda pod: JOB,
    is_deleting=lambda pod: pod.deleting,
)
NAMES = st.sampled_from("abc")


class OwnWrites(RuleBasedStateMachine):
    """The operator and other clients write; the store receives each write later by a watch event, or by a relist that
    skips older events."""

    def __init__(self) -> None:
        super().__init__()
        self.revision = 1
        self.world: dict[str, Pod] = {}
        self.log: list[tuple[str, Pod]] = []  # the watch events
        self.delivered = 0  # events of `log` that the store has received
        self.store: Store[Pod] = Store(POD_ADAPTER)
        self.store.apply(ListReplaced((), "1"))
        self.writes: InFlightWrites[str] = InFlightWrites({PODS: self.store}, timeout=20.0)
        self.recorded: list[AcknowledgedWrite[str]] = []

    def write(self, event_type: str, pod: Pod) -> None:
        if event_type == "DELETED":
            self.world.pop(pod.name, None)
        else:
            self.world[pod.name] = pod
        self.log.append((event_type, pod))

    def record_write(self, write: AcknowledgedWrite[str]) -> None:
        self.recorded.append(write)
        self.writes.record(JOB, write, 0.0)

    @rule(name=NAMES, ours=st.booleans())
    def create(self, name: str, ours: bool) -> None:
        if name not in self.world:
            self.revision += 1
            pod = Pod(name, f"u{self.revision}", self.revision)
            self.write("ADDED", pod)
            if ours:
                self.record_write(AcknowledgedWrite(PODS, pod.uid, str(pod.revision)))

    @rule(name=NAMES, ours=st.booleans())
    def patch(self, name: str, ours: bool) -> None:
        if name in self.world:
            self.revision += 1
            pod = self.world[name]._replace(revision=self.revision)
            self.write("MODIFIED", pod)
            if ours:
                self.record_write(AcknowledgedWrite(PODS, pod.uid, str(pod.revision)))

    @rule(name=NAMES, ours=st.booleans(), gracefully=st.booleans())
    def delete(self, name: str, ours: bool, gracefully: bool) -> None:
        if name in self.world:
            self.revision += 1
            pod = self.world[name]._replace(revision=self.revision, deleting=True)
            before = self.writes.cached_revision(PODS, pod.uid)
            self.write("MODIFIED" if gracefully else "DELETED", pod)
            if ours and self.store.by_uid(pod.uid):  # the operator deletes cached pods only
                self.record_write(AcknowledgedWrite(PODS, pod.uid, before, deleted=True))

    @precondition(lambda self: self.delivered < len(self.log))
    @rule()
    def deliver_event(self) -> None:
        event_type, pod = self.log[self.delivered]
        self.delivered += 1
        self.store.apply(ObjectChanged(event_type, pod, str(pod.revision)))

    @rule()
    def relist(self) -> None:
        self.delivered = len(self.log)
        self.store.apply(ListReplaced(tuple(self.world.values()), str(self.revision)))

    @precondition(lambda self: self.delivered == len(self.log))
    @rule()
    def bookmark(self) -> None:
        self.store.apply(RevisionAdvanced(str(self.revision)))

    @invariant()
    def not_waiting_means_that_every_write_has_been_seen(self) -> None:
        if self.writes.has_pending(JOB):
            assert self.delivered < len(self.log), "the store has received everything, and a write is still pending"
            return
        received = self.log[: self.delivered]
        for write in self.recorded:
            versions = [pod for _, pod in received if pod.uid == write.uid]
            if write.deleted:
                is_newer = versions[-1].revision > int(write.revision)
                assert self.store.by_uid(write.uid) is None or (versions[-1].deleting and is_newer)
            else:
                assert versions and int(write.revision) <= max(pod.revision for pod in versions)


TestOwnWrites = OwnWrites.TestCase
TestOwnWrites.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


@pytest.fixture
def store() -> Store[Pod]:
    store: Store[Pod] = Store(POD_ADAPTER)
    store.apply(ListReplaced((), "5"))
    return store


def test_a_write_that_does_not_arrive_triggers_a_relist_which_ends_the_wait(store: Store[Pod]) -> None:
    writes: InFlightWrites[str] = InFlightWrites({PODS: store}, timeout=20.0)
    writes.record(JOB, AcknowledgedWrite(PODS, "lost", "9"), 100.0)
    assert writes.has_pending(JOB) and writes.deadline(JOB) == 120.0
    assert writes.overdue_resources(JOB, 119.9) == set()
    assert writes.overdue_resources(JOB, 120.0) == {PODS}
    assert writes.deadline(JOB) == 140.0  # the next relist is not requested at once
    assert writes.has_pending(JOB)
    store.apply(ListReplaced((), "opaque-revision"))
    assert not writes.has_pending(JOB) and writes.deadline(JOB) is None


def test_with_opaque_revisions_a_list_before_the_time_out_proves_nothing(store: Store[Pod]) -> None:
    writes: InFlightWrites[str] = InFlightWrites({PODS: store}, timeout=20.0)
    writes.record(JOB, AcknowledgedWrite(PODS, "new", "opaque-b"), 100.0)
    store.apply(ListReplaced((), "opaque-a"))
    assert writes.has_pending(JOB)
    store.apply(ObjectChanged("ADDED", Pod("a", "new", 0)._replace(), "opaque-c"))
    assert writes.has_pending(JOB)  # cached, but at another revision than that of the write


def test_a_force_delete_is_in_flight_until_the_terminating_pod_is_gone(store: Store[Pod]) -> None:
    """A plan between the answer and the watch event deleted the pod of a lost node once more, and got a 404."""
    writes: InFlightWrites[str] = InFlightWrites({PODS: store})
    terminating = Pod("a", "u", 7, deleting=True)
    store.apply(ObjectChanged("MODIFIED", terminating, "7"))
    writes.record(JOB, AcknowledgedWrite(PODS, "u", writes.cached_revision(PODS, "u"), deleted=True), 0.0)
    assert writes.has_pending(JOB)
    store.apply(ObjectChanged("DELETED", terminating, "8"))
    assert not writes.has_pending(JOB)


def test_jobs_wait_for_their_own_writes_only(store: Store[Pod]) -> None:
    writes: InFlightWrites[str] = InFlightWrites({PODS: store})
    writes.record(JOB, AcknowledgedWrite(PODS, "one", "9"), 0.0)
    assert writes.has_pending(JOB) and not writes.has_pending("another")
    writes.forget(JOB)
    assert not writes.has_pending(JOB)


def test_writes_that_the_stores_show_are_forgotten(store: Store[Pod]) -> None:
    """Found by a soak test: a deleted job is not reconciled any more."""
    writes: InFlightWrites[str] = InFlightWrites({PODS: store})
    writes.record("waits", AcknowledgedWrite(PODS, "late", "999999"), 0.0)
    for number in range(1000):
        writes.record(f"job-{number}", AcknowledgedWrite(PODS, f"pod-{number}", deleted=True), 0.0)
    assert len(writes._in_flight) <= 2 * SWEEP_THRESHOLD and writes.has_pending("waits")
