"""Random legal streams, with losses, duplicates and 410s, into a store: it always equals the world at its revision."""

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
    State,
    Watching,
    step,
)
from trainyard.controller_runtime.store import Store
from trainyard.objects import Key

pytestmark = pytest.mark.slow


class Thing(NamedTuple):
    name: str
    uid: str
    owner: str
    revision: int


THINGS: ObjectAdapter[Thing] = ObjectAdapter(
    decode=lambda raw: Thing(raw.decode(), "", "", 0),
    key=lambda thing: Key("n", thing.name),
    uid=lambda thing: thing.uid,
    revision=lambda thing: str(thing.revision),
    index=lambda thing: thing.owner,
    deleting=lambda thing: False,
)

NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
OWNERS = st.sampled_from(["x", "y"])


class Watched(RuleBasedStateMachine):
    """A server with a log and a floor; a watch machine; a store. The wire may do anything legal."""

    def __init__(self) -> None:
        super().__init__()
        self.revision = 10
        self.floor = 10
        self.world: dict[str, Thing] = {}
        self.history: dict[int, dict[str, Thing]] = {10: {}}
        self.log: list[tuple[int, str, Thing]] = []
        self.state: State[Thing] = NotListed()
        self.store: Store[Thing] = Store(THINGS)
        self.listing: tuple[int, list[Thing]] = (0, [])
        self.touched: set[str] = set()
        self.believed: dict[str, int] = {}

    # The world.

    def write(self, verb: str, thing: Thing) -> None:
        self.log.append((self.revision, verb, thing))
        self.history[self.revision] = dict(self.world)

    @rule(names=st.lists(NAMES, min_size=1, max_size=5), owner=OWNERS)
    def put(self, names: list[str], owner: str) -> None:
        for name in names:
            self.revision += 1
            before = self.world.get(name)
            thing = Thing(name, before.uid if before else f"u{self.revision}", owner, self.revision)
            self.world[name] = thing
            self.write("MODIFIED" if before else "ADDED", thing)

    @rule(name=NAMES)
    def remove(self, name: str) -> None:
        if name in self.world:
            self.revision += 1
            gone = self.world.pop(name)._replace(revision=self.revision)
            self.write("DELETED", gone)

    @rule(share=st.floats(0, 1))
    def compact(self, share: float) -> None:
        self.floor += int((self.revision - self.floor) * share)

    # The wire.

    def got(self, got: Any) -> None:
        said, self.state = step(self.state, got)
        if said is not None:
            for before, after in self.store.apply(said):
                for thing in (before, after):
                    if thing is not None:
                        self.touched.add(thing.name)

    @precondition(lambda self: isinstance(self.state, NotListed))
    @rule(size=st.integers(1, 6))
    def first_page(self, size: int) -> None:
        things = sorted(self.world.values())
        self.listing = (self.revision, things[size:])
        self.got(ListPage(tuple(things[:size]), str(self.revision), "more" if things[size:] else ""))

    @precondition(lambda self: isinstance(self.state, Listing))
    @rule(size=st.integers(1, 3))
    def next_page(self, size: int) -> None:
        revision, rest = self.listing
        if revision < self.floor:
            self.got(Expired())
            return
        self.listing = (revision, rest[size:])
        self.got(ListPage(tuple(rest[:size]), str(revision), "more" if rest[size:] else ""))

    @precondition(lambda self: isinstance(self.state, Watching))
    @rule(count=st.integers(0, 4), again=st.integers(0, 6))
    def lines(self, count: int, again: int) -> None:
        """What comes after where we are; and one line from before it, that is delivered once more."""
        assert isinstance(self.state, Watching)
        known = int(self.state.revision)
        if known < self.floor:
            self.got(Expired())
            return
        late = [entry for entry in self.log if self.floor <= entry[0] <= known][-again:][:1] if again else []
        for revision, verb, thing in late + [entry for entry in self.log if entry[0] > known][:count]:
            self.got(ObjectEvent(verb, thing, str(revision)))

    @precondition(lambda self: isinstance(self.state, Watching))
    @rule()
    def bookmark(self) -> None:
        """Legal only when everything up to it has been delivered."""
        assert isinstance(self.state, Watching)
        known = int(self.state.revision)
        quiet = min((entry[0] - 1 for entry in self.log if entry[0] > known), default=self.revision)
        self.got(Bookmark(str(quiet)))

    @rule(trouble=st.sampled_from([Disconnected(), ErrorAnswer(), Expired()]))
    def break_down(self, trouble: Any) -> None:
        self.got(trouble)

    # What must hold.

    @invariant()
    def the_store_is_the_world_at_its_revision(self) -> None:
        if not self.store.synced:
            assert len(self.store) == 0
            return
        at = max(revision for revision in self.history if revision <= int(self.store.revision))
        expected = self.history[at]
        assert {thing.name: thing for thing in self.store} == expected
        for owner in ("x", "y"):
            under = {thing.name for thing in self.store.by_index(owner)}
            assert under == {thing.name for thing in expected.values() if thing.owner == owner}
        for thing in expected.values():
            assert self.store.by_uid(thing.uid) == thing
        gone = {entry[2].uid for entry in self.log} - {thing.uid for thing in expected.values()}
        assert all(self.store.by_uid(uid) is None for uid in gone)

    @invariant()
    def everything_that_differs_was_told(self) -> None:
        """Whoever sleeps until told never sleeps through a change, vanished objects included."""
        now = {thing.name: thing.revision for thing in self.store}
        differs = {name for name in now.keys() | self.believed.keys() if now.get(name) != self.believed.get(name)}
        assert differs <= self.touched
        self.believed, self.touched = now, set()


TestWatched = Watched.TestCase
TestWatched.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)


def test_a_relist_tells_only_what_is_different() -> None:
    store: Store[Thing] = Store(THINGS)
    one, two, three = (Thing(name, f"u{name}", "x", 1) for name in "abc")
    everything, _ = step(NotListed(), ListPage((one, two), "5"))
    assert everything is not None
    store.apply(everything)
    relist, _ = step(NotListed(), ListPage((one, three), "9"))
    assert relist is not None
    assert store.lists == 1
    changes = store.apply(relist)
    assert set(changes) == {(two, None), (None, three)}
    assert store.lists == 2 and store.revision == "9"
