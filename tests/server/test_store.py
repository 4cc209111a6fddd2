"""The objects of a resource against a dict that is searched from end to end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainyard.objects import NamespacedName
from trainyard.objects.labels import equality_requirement, parse_selector
from trainyard.server.model.store import MAX_LABEL_INDEXES, ObjectStore, Record

KEYS = [NamespacedName("a", "x"), NamespacedName("a", "y"), NamespacedName("b", "x")]
VALUES = ["", "1", "2"]
WRITES = st.lists(
    st.tuples(st.sampled_from(KEYS), st.none() | st.dictionaries(st.sampled_from("pq"), st.sampled_from(VALUES))),
    max_size=30,
)


@given(WRITES, st.sampled_from(["first", "always", "last"]))
def test_an_object_is_found_by_label_before_and_after_the_index_exists(
    writes: list[tuple[NamespacedName, dict[str, str] | None]], looked_up: str
) -> None:
    store = ObjectStore()
    if looked_up == "first":
        store.view_by_label(("p", "1"))
    for number, (key, labels) in enumerate(writes):
        store.put(key, None if labels is None else Record(number, b"", labels, {}))
        for name in "pq" if looked_up == "always" or number == len(writes) - 1 else "":
            for value in VALUES:
                having = sorted(key for key, record in store.records.items() if record.labels.get(name) == value)
                assert store.view_by_label((name, value)).keys == having
        assert store.view().keys == sorted(store.records)


def test_a_label_evicted_from_the_index_is_found_all_the_same() -> None:
    store = ObjectStore()
    for name in ["p", *map(str, range(MAX_LABEL_INDEXES)), "p"]:
        store.put(KEYS[0], Record(1, b"", {name: "v"}, {}))
        assert store.view_by_label((name, "v")).keys == [KEYS[0]]


@given(st.lists(st.sampled_from(["p=1", "p==2", "q=", "p!=1", "q in (1)", "p", "!q"]), max_size=3), st.booleans())
def test_every_selected_object_has_the_labels_that_the_selector_requires(terms: list[str], spaced: bool) -> None:
    text = (" , " if spaced else ",").join(terms)
    label, wanted = equality_requirement(text), parse_selector(text)
    assert (label is None) is not any("=" in term and "!" not in term for term in terms)
    for labels in ({}, *({"p": p, "q": q} for p in VALUES for q in VALUES), *({"p": p} for p in VALUES)):
        assert not (label and wanted(labels)) or labels.get(label[0]) == label[1], (text, labels)
