"""Random legal watches, with lost connections, duplicates and 410s: the store always equals the server's objects at the
store's resourceVersion."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from trainyard.controller_runtime.object_adapter import ObjectAdapter
from trainyard.controller_runtime.reflector import (
    Bookmark,
    Disconnected,
    ErrorAnswer,
    Expired,
    Listing,
    ListPage,
    NotListed,
    ObjectEvent,
    ReflectorState,
    Watching,
    step,
)
from trainyard.controller_runtime.store import Store
from trainyard.objects import NamespacedName

pytestmark = pytest.mark.slow


class StoredObject(NamedTuple):
    name: str
    uid: str
    owner: str
    revision: int


ADAPTER: ObjectAdapter[StoredObject] = ObjectAdapter(
    decode=lambda raw: StoredObject(raw.decode(), "", "", 0),
    key=lambda obj: NamespacedName("n", obj.name),
    uid=lambda obj: obj.uid,
    revision=lambda obj: str(obj.revision),
    index=lambda obj: obj.owner,
    is_deleting=lambda obj: False,
)

NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
OWNERS = st.sampled_from(["x", "y"])


class Watched(RuleBasedStateMachine):
    """A server with an event log, which expires below `oldest`; a reflector's state; a store. The connection may do
    anything legal."""

    def __init__(self) -> None:
        super().__init__()
        self.revision = 10
        self.oldest = 10
        self.objects: dict[str, StoredObject] = {}
        self.history: dict[int, dict[str, StoredObject]] = {10: {}}
        self.log: list[tuple[int, str, StoredObject]] = []
        self.state: ReflectorState[StoredObject] = NotListed()
        self.store: Store[StoredObject] = Store(ADAPTER)
        self.listing: tuple[int, list[StoredObject]] = (0, [])
        self.reported: set[str] = set()  # names of the changes that the store returned since the last check
        self.previous: dict[str, int] = {}  # name -> revision in the store at the last check

    # The server.

    def write(self, event_type: str, obj: StoredObject) -> None:
        self.log.append((self.revision, event_type, obj))
        self.history[self.revision] = dict(self.objects)

    @rule(names=st.lists(NAMES, min_size=1, max_size=5), owner=OWNERS)
    def put(self, names: list[str], owner: str) -> None:
        for name in names:
            self.revision += 1
            before = self.objects.get(name)
            obj = StoredObject(name, before.uid if before else f"u{self.revision}", owner, self.revision)
            self.objects[name] = obj
            self.write("MODIFIED" if before else "ADDED", obj)

    @rule(name=NAMES)
    def remove(self, name: str) -> None:
        if name in self.objects:
            self.revision += 1
            deleted = self.objects.pop(name)._replace(revision=self.revision)
            self.write("DELETED", deleted)

    @rule(share=st.floats(0, 1))
    def compact(self, share: float) -> None:
        self.oldest += int((self.revision - self.oldest) * share)

    # The connection.

    def receive(self, watch_input: Any) -> None:
        event, self.state = step(self.state, watch_input)
        if event is not None:
            for before, after in self.store.apply(event):
                for obj in (before, after):
                    if obj is not None:
                        self.reported.add(obj.name)

    @precondition(lambda self: isinstance(self.state, NotListed))
    @rule(size=st.integers(1, 6))
    def first_page(self, size: int) -> None:
        objs = sorted(self.objects.values())
        self.listing = (self.revision, objs[size:])
        self.receive(ListPage(tuple(objs[:size]), str(self.revision), "more" if objs[size:] else ""))

    @precondition(lambda self: isinstance(self.state, Listing))
    @rule(size=st.integers(1, 3))
    def next_page(self, size: int) -> None:
        revision, rest = self.listing
        if revision < self.oldest:
            self.receive(Expired())
            return
        self.listing = (revision, rest[size:])
        self.receive(ListPage(tuple(rest[:size]), str(revision), "more" if rest[size:] else ""))

    @precondition(lambda self: isinstance(self.state, Watching))
    @rule(count=st.integers(0, 4), repeated=st.integers(0, 6))
    def deliver_events(self, count: int, repeated: int) -> None:
        """Deliver the next events, and before them one event that was delivered already."""
        assert isinstance(self.state, Watching)
        known = int(self.state.revision)
        if known < self.oldest:
            self.receive(Expired())
            return
        old = [entry for entry in self.log if self.oldest <= entry[0] <= known][-repeated:][:1] if repeated else []
        for revision, event_type, obj in old + [entry for entry in self.log if entry[0] > known][:count]:
            self.receive(ObjectEvent(event_type, obj, str(revision)))

    @precondition(lambda self: isinstance(self.state, Watching))
    @rule()
    def bookmark(self) -> None:
        """Legal only when everything up to it has been delivered."""
        assert isinstance(self.state, Watching)
        known = int(self.state.revision)
        revision = min((entry[0] - 1 for entry in self.log if entry[0] > known), default=self.revision)
        self.receive(Bookmark(str(revision)))

    @rule(failure=st.sampled_from([Disconnected(), ErrorAnswer(), Expired()]))
    def fail(self, failure: Any) -> None:
        self.receive(failure)

    # The invariants.

    @invariant()
    def the_store_is_the_world_at_its_revision(self) -> None:
        if not self.store.synced:
            assert len(self.store) == 0
            return
        at = max(revision for revision in self.history if revision <= int(self.store.revision))
        expected = self.history[at]
        assert {obj.name: obj for obj in self.store} == expected
        for owner in ("x", "y"):
            names = {obj.name for obj in self.store.by_index(owner)}
            assert names == {obj.name for obj in expected.values() if obj.owner == owner}
        for obj in expected.values():
            assert self.store.by_uid(obj.uid) == obj
        deleted_uids = {entry[2].uid for entry in self.log} - {obj.uid for obj in expected.values()}
        assert all(self.store.by_uid(uid) is None for uid in deleted_uids)

    @invariant()
    def every_difference_was_reported(self) -> None:
        """`Store.apply` returns every change, deletions included."""
        revisions = {obj.name: obj.revision for obj in self.store}
        names = revisions.keys() | self.previous.keys()
        changed = {name for name in names if revisions.get(name) != self.previous.get(name)}
        assert changed <= self.reported
        self.previous, self.reported = revisions, set()


TestWatched = Watched.TestCase
TestWatched.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)


def test_a_relist_reports_only_differences() -> None:
    store: Store[StoredObject] = Store(ADAPTER)
    first, second, third = (StoredObject(name, f"u{name}", "x", 1) for name in "abc")
    first_list, _ = step(NotListed(), ListPage((first, second), "5"))
    assert first_list is not None
    store.apply(first_list)
    relist, _ = step(NotListed(), ListPage((first, third), "9"))
    assert relist is not None
    assert store.list_count == 1
    changes = store.apply(relist)
    assert set(changes) == {(second, None), (None, third)}
    assert store.list_count == 2 and store.revision == "9"
