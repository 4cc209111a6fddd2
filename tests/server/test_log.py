"""The log against a model that anybody can check: a dict for each revision."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.objects import NamespacedName
from trainyard.server.model.store import LogEntry, Record
from trainyard.server.storage.log import Compacted, FutureRevision, RevisionConflict, RevisionLog

KEYS = [NamespacedName("a", "x"), NamespacedName("a", "y"), NamespacedName("b", "x")]
STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "delete", "stale", "compact"]), st.sampled_from("pq"), st.sampled_from(KEYS)),
    max_size=40,
)


def put(log: RevisionLog, store: str, key: NamespacedName, text: bytes = b"") -> LogEntry:
    before = log.get(store, key)
    record = Record(log.revision + 1, text or b"%d" % (log.revision + 1), {}, {})
    return log.append(store, key, record, before.revision if before else 0)


def delete(log: RevisionLog, store: str, key: NamespacedName) -> LogEntry:
    before = log.get(store, key)
    assert before is not None
    return log.append(store, key, None, before.revision, b"last")


@given(STEPS)
def test_every_revision_can_be_read(steps: list[tuple[str, str, NamespacedName]]) -> None:
    log = RevisionLog()
    now: dict[tuple[str, NamespacedName], bytes] = {}
    past = [dict(now)]
    for step, store, key in steps:
        if step == "put":
            now[store, key] = b"%d" % put(log, store, key).revision
        elif step == "delete" and (store, key) in now:
            delete(log, store, key)
            del now[store, key]
        elif step == "stale":
            with pytest.raises(RevisionConflict):
                log.append(store, key, None, log.revision + 5)
            continue
        elif step == "compact":
            log.compact(log.revision // 2)
            continue
        else:
            continue
        past.append(dict(now))
    assert log.revision == len(past) - 1
    for revision, state in enumerate(past):
        for store in "pq":
            if revision < log.floor:
                with pytest.raises(Compacted):
                    log.list(store, revision or -1)
            elif revision:
                expected = sorted((key, body) for (place, key), body in state.items() if place == store)
                assert [(key, record.body) for key, record in log.list(store, revision)] == expected
    assert [(key, record.body) for key, record in log.list("p")] == sorted(
        (key, body) for (place, key), body in now.items() if place == "p"
    )
    assert [entry.revision for entry in log.after(log.floor)] == list(range(log.floor + 1, log.revision + 1))


@given(STEPS)
def test_reading_on_from_any_revision_gives_the_present(steps: list[tuple[str, str, NamespacedName]]) -> None:
    log = RevisionLog()
    states: list[dict[Any, Any]] = [{}]
    now: dict[NamespacedName, bytes] = {}
    for step, _, key in steps:
        if step == "put":
            now[key] = b"%d" % put(log, "p", key).revision
        elif step == "delete" and key in now:
            delete(log, "p", key)
            del now[key]
        else:
            continue
        states.append(dict(now))
    for revision, state in enumerate(states):
        for entry in log.after(revision):
            if entry.record is None:
                assert entry.previous is not None and entry.previous.body == state.pop(entry.key)
            else:
                assert (entry.previous.body if entry.previous else None) == state.get(entry.key)
                state[entry.key] = entry.record.body
        assert state == now


@given(STEPS, st.sampled_from(["", "a", "b"]), st.none() | st.sampled_from(KEYS), st.booleans())
def test_a_store_is_sorted_and_a_namespace_is_a_range_of_it(
    steps: list[tuple[str, str, NamespacedName]], namespace: str, start: NamespacedName | None, looked: bool
) -> None:
    log = RevisionLog()
    now: set[NamespacedName] = set()
    for step, _, key in steps:
        if looked:  # from then on the order is kept, not made anew
            log.view("p")
        if step == "put":
            put(log, "p", key)
            now.add(key)
        elif step == "delete" and key in now:
            delete(log, "p", key)
            now.remove(key)
    assert log.view("p").keys == sorted(now)
    expected = sorted(
        key for key in now if key.namespace == (namespace or key.namespace) and (not start or key >= start)
    )
    assert log.view("p").keys_in(namespace, start) == expected


def test_the_past_is_bounded_and_the_present_is_not() -> None:
    log = RevisionLog(keep=10)
    for index in range(100):
        put(log, "p", NamespacedName("a", str(index)))
    assert log.floor >= 80 and log.revision == 100
    assert len(log.list("p")) == 100
    with pytest.raises(Compacted):
        log.after(log.floor - 1)
    with pytest.raises(FutureRevision):
        log.after(101)


def test_large_entries_are_kept_for_a_shorter_time() -> None:
    log = RevisionLog(keep_bytes=10_000)
    for _ in range(100):
        put(log, "p", KEYS[0], b"x" * 1000)
    assert 90 <= log.floor < 100 and log.revision == 100
    assert log.list("p")[0][1].revision == 100


def test_a_new_follower_gets_the_existing_objects() -> None:
    log, heard = RevisionLog(), []
    put(log, "p", KEYS[0])
    put(log, "p", KEYS[1])
    delete(log, "p", KEYS[0])
    log.follow(lambda entry: heard.append((entry.revision, entry.key)))
    assert heard == [(2, KEYS[1])]


def test_a_follower_gets_every_entry_once_and_in_order() -> None:
    log, heard = RevisionLog(), []
    log.follow(lambda entry: heard.append((entry.revision, entry.record is None)))
    put(log, "p", KEYS[0])
    put(log, "p", KEYS[0])
    delete(log, "p", KEYS[0])
    assert heard == [(1, False), (2, False), (3, True)]


def test_a_record_with_the_wrong_number_is_not_written() -> None:
    log = RevisionLog()
    with pytest.raises(RevisionConflict):
        log.append("p", KEYS[0], Record(7, b"", {}, {}), 0)
    assert log.revision == 0 and log.get("p", KEYS[0]) is None


def test_the_history_stays_almost_as_long_as_its_limit_in_bytes() -> None:
    log = RevisionLog(keep_bytes=10_000)
    lengths = []
    for _ in range(400):
        put(log, "p", KEYS[0], b"x" * 100)
        lengths.append(log.revision - log.floor)
    assert min(lengths[100:]) >= 0.85 * max(lengths)
