"""What a person may write in a manifest, and the one sentence for each thing that cannot be read."""

from __future__ import annotations

import json
import re
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trainyard.objects import Problem, encode
from trainyard.objects.manifest import Document, ManifestError, read
from trainyard.objects.yaml_reader import load
from trainyard.objects.yaml_scalars import resolve_scalar
from trainyard.objects.yaml_text import as_yaml

HEAD = "apiVersion: v1\nkind: ConfigMap\n"


def refused(text: str | bytes) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        read(text, "job.yaml")
    return [str(problem) for problem in caught.value.problems]


# --- What is read ---------------------------------------------------------------------------------------------------


def test_documents_are_read_in_order_with_their_lines_and_empty_ones_are_skipped() -> None:
    text = f"# a comment\n---\n{HEAD}metadata: {{name: a}}\n---\n---\n# nothing\n---\n{HEAD}metadata: {{name: b}}\n"
    assert [(d.obj["metadata"]["name"], d.line) for d in read(text, "f")] == [("a", 3), ("b", 10)]
    assert read(text, "f")[0].object_location == "f:3"


def test_lists_are_their_items_also_lists_of_lists_and_typed_lists() -> None:
    inner = "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: B}]}"
    text = (
        f"apiVersion: v1\nkind: List\nitems:\n- {{apiVersion: v1, kind: A}}\n- {inner}\n- {{apiVersion: v1, kind: C}}\n"
    )
    assert [(d.obj["kind"], d.line) for d in read(text, "f")] == [("A", 4), ("B", 5), ("C", 6)]
    typed = "apiVersion: tensorflow.org/v1alpha1\nkind: TfJobList\nitems: [{metadata: {name: x}}]"
    assert read(typed, "f")[0].obj == {
        "apiVersion": "tensorflow.org/v1alpha1", "kind": "TfJob", "metadata": {"name": "x"},
    }  # fmt: skip
    assert read("{apiVersion: v1, kind: List, items: []}", "f") == []


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("2017-10-20T22:27:38Z", "2017-10-20T22:27:38Z"), ("2017-10-20", "2017-10-20"), ("12:30:45", "12:30:45"),
        ("yes", True), ("NO", False), ("on", True), ("Off", False), ("y", True), ("n", False), ("yEs", "yEs"),
        ("true", True), ("False", False), ("tRUE", "tRUE"), ("~", None), ("null", None), ("", None), ("nUll", "nUll"),
        ("0", 0), ("-1", -1), ("+7", 7), ("0777", 511), ("0o17", 15), ("0x1F", 31), ("-0x10", -16), ("0b101", 5),
        ("1_000", 1000), ("08", 8), ("1e3", 1000), ("2.0", 2), ("1.5", 1.5), ("-.5", -0.5), (".5", 0.5), ("1.", 1),
        ("1e-3", 0.001), ("9223372036854775808", 9223372036854775808), ("1.2.3", "1.2.3"), ("-", "-"), ("+", "+"),
        (".", "."), ("..", ".."), ("0x", "0x"), ("1e", "1e"), ("500m", "500m"), ("2Gi", "2Gi"), ("dc944ff", "dc944ff"),
        ("0xg", "0xg"), ("1,5", "1,5"), ("NaN", "NaN"), ("inf", "inf"), ("Infinity", "Infinity"), ("=", "="),
        ("<<", "<<"), ("1:30", "1:30"), ("190:20:30", "190:20:30"), ("2001-12-14t21:59:43.10-05:00",) * 2,
        # Beyond a float: a git hash, and what else Go's strconv answers with "value out of range".
        ("18549e9054", "18549e9054"), ("07502e3070", "07502e3070"), ("1e400", "1e400"), (".1e400", ".1e400"),
        ("-1e309", "-1e309"), ("1.7976931348623159e308",) * 2, ("1.7976931348623157e308", 1.7976931348623157e308),
        ("1e-400", 0), ("18446744073709551615", 18446744073709551615), ("18446744073709551616", 18446744073709551616.0),
        ("-9223372036854775808", -9223372036854775808), ("-9223372036854775809", -9223372036854775809.0),
        ("+9223372036854775808", 9223372036854775808.0), ("1.2345678901234567e18", 1234567890123456800),
        ("0x1ffffffffffffffff",) * 2, ("-0x8000000000000001",) * 2, ("-0x8000000000000000", -(2**63)),
        (f"0b{'1' * 65}",) * 2, ("0o7777777777777777777777777",) * 2,
        ("0777777777777777777777777", 777777777777777777777777.0),
        ("0_8", 8), ("1__0", 10), ("_1", "_1"), ("+_1", 1), ("1e1_0", 10**10), ("0b-1", -1), ("-0b-1", "-0b-1"),
        (".5_0", 0.5), (".5__0", ".5__0"), (".5_", ".5_"), ("-.5__0", -0.5), ("0B1", 1), ("0O17", 15), ("-0.0", 0),
        ("9" * 400, "9" * 400),
    ],
)  # fmt: skip
def test_a_plain_yaml_scalar_has_the_same_value_as_in_kubectl(scalar: str, value: Any) -> None:
    assert resolve_scalar(scalar) == value and type(resolve_scalar(scalar)) is type(value)
    if scalar not in ("-",):
        obj = read(f"{HEAD}x: {scalar}\nq: '{scalar}'\n", "f")[0].obj
        assert (obj["x"], type(obj["x"]), obj["q"]) == (value, type(value), scalar)


def test_a_number_beyond_a_float_may_be_a_key() -> None:
    assert read(f"{HEAD}data:\n  18549e9054: x\n", "f")[0].obj["data"] == {"18549e9054": "x"}


def test_a_json_integer_beyond_64_bits_is_a_float_as_in_kubectl() -> None:
    obj = read('{"apiVersion": "v1", "kind": "A", "a": 18446744073709551616}', "f")[0].obj
    assert obj["a"] == 18446744073709551616.0 and isinstance(obj["a"], float)


def test_anchors_aliases_and_merge_keys_are_expanded_into_copies() -> None:
    text = (
        f"{HEAD}b: &b {{image: x, args: [1]}}\nc: *b\nd: {{<<: *b, image: z}}\ne: {{<<: [{{k: 1}}, {{k: 2, l: 3}}]}}\n"
    )
    obj = read(text, "f")[0].obj
    assert obj["c"] == {"image": "x", "args": [1]}
    assert obj["d"] == {"image": "z", "args": [1]}
    assert obj["e"] == {"k": 1, "l": 3}
    obj["c"]["args"].append(2)
    assert obj["b"]["args"] == [1] and obj["d"]["args"] == [1]


def test_json_files_are_read_with_everything_json_may_write() -> None:
    obj = {
        "apiVersion": "v1",
        "kind": "A",
        "t": 'tab\there "quoted" \U0001f600',
        "n": [1, 1.5, -0.0, True, None],
        "d": {},
    }
    for text in (
        json.dumps(obj),
        "\ufeff\n\t" + json.dumps(obj, indent="\t"),
        json.dumps(obj).replace("quoted", "\\/"),
    ):
        assert read(text, "f")[0].obj["n"] == obj["n"]
    assert read(json.dumps(obj), "f")[0].obj == obj
    assert read(b"\xef\xbb\xbf" + json.dumps(obj).encode(), "f")[0].obj == obj


def test_block_texts_and_quotes_keep_every_character() -> None:
    obj = read(f"{HEAD}a: |\n  one\n   two\n\nb: >-\n  one\n  two\nc: 'it''s'\nd: \"\\u00e4\\n\"\n", "f")[0].obj
    assert (obj["a"], obj["b"], obj["c"], obj["d"]) == ("one\n two\n", "one two", "it's", "ä\n")


# --- What is refused ------------------------------------------------------------------------------------------------

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
FLAT_BOMB = f"a: &a {'x' * 100_000}\nb: [{','.join(['*a'] * 1000)}]\n"
LADDER = "a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 200))
MERGE_BOMB = "a: &a {" + ",".join(f"k{n}: {n}" for n in range(500)) + "}\nb: [" + "{<<: *a}," * 5000 + "]\n"

SHAPE = re.compile(r"job\.yaml:[1-9][0-9]*: [^ :]+: \S")  # file:line: field: text
BAD: dict[str, tuple[str | bytes, str, str]] = {
    # name: (text, where, a part of the sentence)
    "empty": ("", "job.yaml:1: document:", "has no object; write one"),
    "only comments": ("# hi\n---\n---\n", "job.yaml:", "has no object"),
    "a text": ("hello", "job.yaml:1: document:", "is text, not an object"),
    "a list": ("- a\n- b\n", "job.yaml:1: document:", "is a list, not an object"),
    "no kind": ("\napiVersion: v1\n", "job.yaml:2: kind:", "is missing; write one, for example kind: TfJob"),
    "no apiVersion": ("kind: TfJob", "job.yaml:1: apiVersion:", "is missing; write one"),
    "kind is a number": ("apiVersion: v1\nkind: 3", "job.yaml:1: kind:", "is a number, not text"),
    "version is a float": ("apiVersion: 1.2\nkind: A", "job.yaml:1: apiVersion:", "is a number, not text"),
    "item is text": ("apiVersion: v1\nkind: List\nitems: [x]", "job.yaml:3: items[0]:", "is text, not an object"),
    "item without kind": (
        "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1}", "job.yaml:4: items[0].kind:", "is missing"),
    "unclosed brace": (f"{HEAD}a: {{b: 1\n", "job.yaml:", "a '{' is not closed"),
    "unclosed bracket": (f"{HEAD}a: [b, 1\n", "job.yaml:", "a '[' is not closed"),
    "unclosed quote": (f"{HEAD}a: 'b\n", "job.yaml:", "a quoted text is not closed"),
    "tab": (f"{HEAD}a:\n\tb: 1\n", "job.yaml:4: YAML:", "a tab is used for indentation; use spaces"),
    "two colons": (f"{HEAD}a: b: c\n", "job.yaml:3:", "a ': ' where no key is allowed"),
    "key without colon": (f"{HEAD}metadata\nspec: 1\n", "job.yaml:", "a key without ':'"),
    "indentation": (f"{HEAD}a:\n    b: 1\n  c: 2\n", "job.yaml:", "the indentation does not fit"),
    "list indentation": (f"{HEAD}a:\n  - b\n  c: 2\n", "job.yaml:", "the indentation does not fit the list"),
    "at sign": (f"{HEAD}a: @b\n", "job.yaml:3:", "a character that cannot begin a value"),
    "bad escape": (f'{HEAD}a: "\\d"\n', "job.yaml:3:", "an escape unknown to YAML"),
    "broken json": ('{"apiVersion": "v1", "kind": "A", "a": [1,}', "job.yaml:1:", ""),
    "two json objects": ('{"apiVersion": "v1", "kind": "A"} {"a": 1}', "job.yaml:1:", "separate documents with '---'"),
    "duplicate key": (
        f"{HEAD}spec:\n  a: [{{b: 1,\n  b: 2}}]\n", "job.yaml:5: spec.a[0].b:",
        "is written twice (first in line 4); keep one"),
    "duplicate kind": (f"{HEAD}kind: Secret\n", "job.yaml:3: kind:", "is written twice (first in line 2)"),
    "duplicate in json": (
        '{"apiVersion": "v1",\n"kind": "A",\n"kind": "B"}', "job.yaml:3: kind:", "is written twice"),
    "two merges": (f"{HEAD}a: &a {{b: 1}}\nc: {{<<: *a, <<: *a}}\n", "job.yaml:4: c.<<:", "is written twice"),
    "merge of text": (f"{HEAD}a: {{<<: b}}\n", "job.yaml:3:", "'<<' merges mappings only"),
    "number key": (f"{HEAD}a: {{1: x}}\n", "job.yaml:3: a:", 'the key 1 is not text; write "1" in quotes'),
    "boolean key": (f"{HEAD}on: x\n", "job.yaml:3:", 'the key on is not text; write "on" in quotes'),
    "null key": (f"{HEAD}a: {{~: x}}\n", "job.yaml:3:", "is not text"),
    "template": (f"{HEAD}a: {{{{ .Values.x }}}}\n", "job.yaml:3:", "a key is a list or a mapping"),
    "list key": (f"{HEAD}? [a]\n: b\n", "job.yaml:3:", "a key is a list or a mapping"),
    "python tag": (
        f"{HEAD}a: !!python/object/apply:os.system ['id']\n", "job.yaml:3: a:",
        "the tag tag:yaml.org,2002:python/object/apply... is not supported"),
    "binary tag": (f"{HEAD}a: !!binary aGk=\n", "job.yaml:3: a:", "the tag tag:yaml.org,2002:binary is not supported"),
    "own tag": (f"{HEAD}a: !x {{b: 1}}\n", "job.yaml:3:", "the tag !x is not supported; remove it"),
    "nan": (f"{HEAD}a: .nan\n", "job.yaml:3: a:", ".nan is not a number in JSON"),
    "infinity": (f"{HEAD}a: [-.inf]\n", "job.yaml:3: a[0]:", "-.inf is not a number in JSON"),
    "json infinity": ('{"apiVersion": "v1", "kind": "A", "a": 1e999}', "job.yaml:1:", "does not fit into 64 bits"),
    "json, an endless whole number": (
        f'{{"apiVersion": "v1", "kind": "A",\n"a": {"9" * 1_000_000}}}', "job.yaml:2:", "does not fit into 64 bits"),
    "unknown alias": (f"{HEAD}a: *b\n", "job.yaml:3:", "the alias *b has no anchor before it"),
    "alias of another document": (f"{HEAD}a: &a 1\n---\n{HEAD}b: *a\n", "job.yaml:7:", "has no anchor before it"),
    "alias inside itself": (f"{HEAD}a: &a [*a]\n", "job.yaml:3:", "is inside its own anchor"),
    "bomb": (BOMB, "job.yaml:", "expand to far more values than the file has"),
    "flat bomb": (FLAT_BOMB, "job.yaml:2:", "expand to far more"),
    "merge bomb": (MERGE_BOMB, "job.yaml:2:", "expand to far more"),
    "ladder of aliases": (LADDER, "job.yaml:", "expand to far more"),
    "deep lists": (f"{HEAD}a: {'[' * 200_000}", "job.yaml:3:", "nested more than 100 levels deep"),
    "deep mappings": (f"{HEAD}a: {'{a: ' * 100_000}", "job.yaml:3:", "nested more than 100 levels deep"),
    "deep json": ('{"a":' * 150 + "1" + "}" * 150, "job.yaml:1:", "nested more than 100 levels deep"),
    "very deep json": ('{"a":' * 100_000, "job.yaml:1:", "nested more than 100 levels deep"),
    "deep block lists": (f"{HEAD}a:\n" + "".join(f"{' ' * n}-\n" for n in range(1, 300)), "job.yaml:", "nested"),
    "too large": ("a" * (3 * 1024 * 1024 + 1), "job.yaml:", "is larger than 3 MiB, the limit of an API server"),
    "utf-16": ("apiVersion: v1".encode("utf-16"), "job.yaml:", "is UTF-16 text; save it as UTF-8"),
    "latin-1": (f"{HEAD}a: café\n".encode("latin-1"), "job.yaml:3:", "is not UTF-8 text"),
    "an archive": (b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03" + bytes(range(256)), "job.yaml:1:", "is not UTF-8 text"),
    "control characters": ("a: \x00\x01\n", "job.yaml", "a control character"),
    "lone surrogate": ("a: \ud800", "job.yaml:", "is not UTF-8 text"),
    "json surrogate": ('{"apiVersion": "v1", "kind": "A", "a": "\\ud800"}', "job.yaml:1:", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_gets_a_sentence_with_file_line_and_fix_at_once(name: str) -> None:
    text, where, part = BAD[name]
    messages = refused(text)
    assert messages[0].startswith(where) and part in messages[0], messages
    assert all("\n" not in message and len(message) < 300 for message in messages)
    assert [message for message in messages if not SHAPE.match(message)] == []
    started = time.process_time()
    refused(text)
    assert time.process_time() - started < 0.05 * 4, "the promise is 50 ms; four times that on a busy machine"


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_costs_less_than_50_megabytes(name: str) -> None:
    tracemalloc.start()
    refused(BAD[name][0])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6


def test_at_most_twenty_problems_are_reported_together() -> None:
    assert len(refused(f"{HEAD}kind: A\na: .nan\nb: !x y\n1: 2\n")) == 4
    assert len(refused(HEAD + "kind: A\n" * 100)) == 20
    assert len(refused("kind: A\n---\napiVersion: v1\n")) == 2


# --- Garbage --------------------------------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [*"{}[]:,-?&*!|>'\"%@`#~\n\t ", "a: ", "- ", "&a ", "*a", "<<: ", "!!int ", "---\n", "...\n", "  ", "1", "y",
     "apiVersion: v1\n", "kind: List\n", "items: ", "kind: A\n", ".nan", "\\", "\u2028", "\x00", "é"]
)  # fmt: skip
WORDS = st.text(alphabet="0123456789+-._xXoObBeEyYnNtTfF~inaA:TZ", max_size=12)


def check(text: str | bytes) -> None:
    documents: list[Document] = []
    problems: list[Problem] = []
    try:
        documents = read(text, "f")
    except ManifestError as error:
        problems = error.problems
        assert problems
    assert all(isinstance(d, Document) and encode(d.obj) for d in documents)
    assert all(p.path and p.text for p in problems)


@settings(max_examples=400, deadline=None)
@given(st.one_of(st.binary(max_size=300), st.text(max_size=300), st.lists(PIECES, max_size=40).map("".join)))
@example(b"%YAML 9.9\n---\na: 1")
@example("%TAG ! tag:x,2000:\n---\na: !b c")
def test_random_text_gives_documents_or_problems(text: str | bytes) -> None:
    check(text)


FLOATS = st.floats(allow_nan=False, allow_infinity=False).filter(  # a larger whole one becomes an int of Go's digits
    lambda value: not value.is_integer() or abs(value) < 2**53
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | FLOATS
    | st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc<~1", max_size=3), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(VALUES)
def test_json_output_is_read_back_by_both_parsers(value: Any) -> None:
    text = json.dumps({"x": value}, ensure_ascii=False)
    assert load(text, "f")[0].value == {"x": value}
    block = "# not the fast path\n" + text
    assert load(block, "f")[0].value == {"x": value}


@settings(max_examples=200, deadline=None)
@given(VALUES)
def test_yaml_output_is_read_back(value: Any) -> None:
    if "<<" not in str(value):
        text = as_yaml({"x": value})  # ours: PyYAML's leaves y, n and 0E0 bare, which Kubernetes' reader does not
        if "!!" not in text:
            assert load("#\n" + text, "f")[0].value == {"x": value}


@settings(max_examples=400, deadline=None)
@given(WORDS)
def test_a_plain_scalar_is_a_json_value_or_a_problem(scalar: str) -> None:
    try:
        value = resolve_scalar(scalar)
    except ValueError as error:
        value = None
        assert ";" in str(error)  # noqa: PT017 - any word may come in, so either outcome is right
    assert encode(value)
    assert value == scalar or not isinstance(value, str)


def test_the_readme_of_the_first_kind_is_read_with_its_times_as_text() -> None:
    text = Path(__file__).parent.joinpath("readme_status.yaml").read_text()
    (document,) = read(text, "f")
    assert document.obj["metadata"]["creationTimestamp"] == "2017-10-20T22:27:38Z"
    assert document.obj["metadata"]["resourceVersion"] == "1881"
    assert document.obj["spec"]["replicaSpecs"][2]["IsDefaultPS"] is True
