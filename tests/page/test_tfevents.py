"""Scalars of event files; no content raises, loops, or reads more than it may (W28)."""

from __future__ import annotations

import math
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.page.tfevents_writer import VERSION, event, field, frame, simple, tensor
from trainyard.page import tfevents
from trainyard.page.tfevents import MAX_EVENT, MAX_PARSED, EventFile, Scalar, event_scalars

MANY = 1 << 30


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (simple("loss", 0.5), 0.5),
        (simple("loss", -2), -2.0),
        (tensor("loss", 1, field(5, 0.25)), 0.25),
        (tensor("loss", 1, field(5, struct.pack("<f", 0.25))), 0.25),  # packed
        (tensor("loss", 1, field(4, struct.pack("<f", 0.75))), 0.75),
        (tensor("loss", 2, field(4, struct.pack("<d", 0.1))), 0.1),
        (tensor("loss", 2, field(6, 0.1, double=True)), 0.1),
        (tensor("loss", 3, field(7, 7)), 7.0),
        (tensor("loss", 9, field(10, -3)), -3.0),
        (tensor("loss", 9, field(4, struct.pack("<q", -3))), -3.0),
        (tensor("loss", 1, field(5, 0.25), 1), 0.25),
        (tensor("loss", 1, field(5, 0.25), 2), None),  # a value that counts for two elements
        (tensor("loss", 1, field(4, struct.pack("<ff", 1, 2)), 2), None),
        (tensor("loss", 7, field(8, b"text")), None),
        (simple("loss", math.nan), math.nan),
        (simple("loss", -math.inf), -math.inf),
        (tensor("loss", 2, field(6, math.inf, double=True)), math.inf),
        (simple("", 1.0), None),
        (field(1, b"image") + field(4, b"png"), None),
    ],
)
def test_a_scalar_in_each_form(value: bytes, number: float | None) -> None:
    expected = [] if number is None else [repr(Scalar("loss", 3, 100.5, number))]  # nan is not equal to itself
    assert [repr(scalar) for scalar in event_scalars(event(3, 100.5, value))] == expected


def test_a_file_is_read_as_it_grows(tmp_path: Path) -> None:
    path, reader = tmp_path / "events", EventFile()
    assert reader.read(path, MANY) == ([], 0, False)
    whole = VERSION + frame(event(1, 10.0, simple("a", 1), simple("b", 2)))
    last = frame(event(2, 11.0, simple("a", 3)))
    for cut in range(len(last)):
        path.write_bytes(whole + last[:cut])
        reader = EventFile()
        assert [scalar.tag for scalar in reader.read(path, MANY)[0]] == ["a", "b"]
        path.write_bytes(whole + last)
        assert reader.read(path, MANY)[0] == [Scalar("a", 2, 11.0, 3.0)]
        assert reader.read(path, MANY)[0] == []


def test_a_file_that_is_replaced_is_read_anew(tmp_path: Path) -> None:
    path, reader = tmp_path / "events", EventFile()
    path.write_bytes(frame(event(1, 10.0, simple("a", 1))))
    assert reader.read(path, MANY)[2] is False
    (tmp_path / "new").write_bytes(frame(event(5, 10.0, simple("a", 9))) * 3)
    os.replace(tmp_path / "new", path)
    scalars, _, is_new = reader.read(path, MANY)
    assert (len(scalars), is_new) == (3, True)


def test_a_length_that_no_event_has_ends_the_file(tmp_path: Path) -> None:
    path, reader = tmp_path / "events", EventFile()
    path.write_bytes(frame(event(1, 10.0, simple("a", 1))) + struct.pack("<Q", MAX_EVENT + 1) + bytes(50) + VERSION * 9)
    assert len(reader.read(path, MANY)[0]) == 1
    assert reader.is_corrupt and reader.read(path, MANY)[0] == []


def test_a_bad_event_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_bytes(frame(b"\xff" * 30) + frame(event(1, 10.0, simple("a", 1))))
    assert len(EventFile().read(path, MANY)[0]) == 1


def test_a_large_event_is_skipped_by_its_length(tmp_path: Path) -> None:
    path = tmp_path / "events"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", 200 << 20) + bytes(4))
        file.seek((200 << 20) + 4, os.SEEK_CUR)
        file.write(frame(event(1, 10.0, simple("a", 1))))
    scalars, read, _ = EventFile().read(path, MANY)
    assert len(scalars) == 1 and read < MAX_PARSED


def test_a_shape_of_many_dimensions_is_read_as_far_as_it_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """The product of 70,000 sizes of 63 bits takes a core for 20 seconds."""
    dimension = field(2, field(1, (1 << 63) - 1))
    count = 0

    def counted(message: bytes) -> Iterator[tuple[int, int, Any]]:
        nonlocal count
        for read in fields(message):
            count += 1
            yield read

    fields = tfevents._fields
    monkeypatch.setattr(tfevents, "_fields", counted)
    assert tfevents._tensor_scalar(field(1, 1) + field(2, dimension * 70_000) + field(5, 0.25)) is None
    assert count == 4
    assert tfevents._tensor_scalar(field(1, 1) + field(2, field(2, field(1, 1)) * 1_000) + field(5, 0.25)) == 0.25


def test_a_reading_has_a_budget(tmp_path: Path) -> None:
    path, reader = tmp_path / "events", EventFile()
    path.write_bytes(frame(event(1, 10.0, simple("a", 1))) * 1000)
    counts = [len(reader.read(path, 5000)[0]) for _ in range(40)]
    assert sum(counts) == 1000 and max(counts) < 150


def test_a_pipe_in_place_of_a_file_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "events")
    assert EventFile().read(tmp_path / "events", MANY)[0] == []


EVENTS = VERSION + b"".join(
    frame(event(step, 10.0 + step, simple("a", step), tensor("b", 1, field(5, 0.5)), tensor("c", 3, field(7, step))))
    for step in range(4)
)


@given(st.lists(st.tuples(st.integers(0, len(EVENTS) - 1), st.integers(0, 255)), max_size=8), st.integers(0, 600))
def test_no_change_of_bytes_raises_or_loops(tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]], cut: int) -> None:  # fmt: skip # noqa: E501
    content = bytearray(EVENTS)
    for position, byte in changes:
        content[position] = byte
    path = tmp_path_factory.getbasetemp() / "mutated"
    path.write_bytes(content[: max(0, len(content) - cut)] if cut > 300 else content)
    begin = time.process_time()
    scalars, _, _ = EventFile().read(path, MANY)
    assert time.process_time() - begin < 0.5
    assert all(math.isfinite(scalar.time) for scalar in scalars)


@given(st.binary(max_size=300))
def test_no_bytes_are_an_error(content: bytes) -> None:
    assert isinstance(event_scalars(content), list)
