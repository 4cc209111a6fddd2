"""Damaged records of the history, from a seed: each is a copy of a real one in which one file is cut off, has random
bytes, or values of another type, a huge number, deep nesting or a hostile text in the place of some of its own."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

HOSTILE = "\x1b[31mhidden\x1b[0m\x1b[2J\x1b]0;x\x07\r\x9b1A\u202e\n\x00\x7f"
DEPTH = 100_000
FILES = ("result.json", "job.yaml", "events.yaml", "manifest.yaml", "metrics.jsonl", "1.log")
NUMBERS = (-1, 0, 10**40, -(10**400), 1e308, float("inf"), float("nan"))
TEXTS = ("", "x", "/", "../../..", "a\0b", "\ud800", HOSTILE, "9" * 5000, "1" * 100_000)
TIMES = ("2026-11-29T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+23:59")
CONTAINERS: tuple[Any, ...] = ([], [1], [[]], [None], [{}], {}, {"a": None}, {"": [{}]})
WRONG: tuple[Any, ...] = (None, True, *NUMBERS, *TEXTS, *TIMES, *CONTAINERS)


def damaged(folder: Path, seed: int) -> str:
    """Damage one file of a record. Returns what was done to which, in words."""
    draw = random.Random(seed)
    path = draw.choice(sorted(folder.rglob(draw.choice(FILES))))
    actions = [_cut_off, _random_bytes, _nested]
    if path.suffix in (".json", ".yaml", ".jsonl"):
        actions += [_wrong_values] * 7
    action = draw.choice(actions)
    path.write_bytes(action(path, draw))
    return f"seed {seed}: {action.__name__.strip('_')} of {path.relative_to(folder)}"


def _cut_off(path: Path, draw: random.Random) -> bytes:
    content = path.read_bytes()
    return content[: draw.randrange(len(content) + 1)]


def _random_bytes(path: Path, draw: random.Random) -> bytes:
    content = bytearray(path.read_bytes())
    for _ in range(draw.choice((1, 3, 30))):
        at = draw.randrange(len(content) + 1)
        content[at : at + draw.choice((0, 1, 8))] = draw.randbytes(draw.choice((1, 4)))
    return bytes(content)


def _nested(path: Path, draw: random.Random) -> bytes:
    depth = draw.choice((200, 2000, DEPTH))
    text = draw.choice(("[" * depth, '{"a":' * depth + "1" + "}" * depth, "[" * depth + "]" * depth))
    places = ("@", '{"pods": @}', '{"uid": "x", "message": @}', "- @\n", "metadata: @\n", "kind: TfJob\nspec: @\n")
    return draw.choice(places).replace("@", text).encode()


def _wrong_values(path: Path, draw: random.Random) -> bytes:
    """The file with one to three values replaced, at any depth; most of them are deep."""
    text = path.read_text(encoding="utf-8")
    if path.name == "events.yaml":
        lines = [json.loads(line.removeprefix("- ")) for line in text.split("\n") if line]
        return "".join(f"- {json.dumps(line)}\n" for line in _changed(lines, draw)).encode()
    if path.suffix == ".jsonl":
        lines = [json.loads(line) for line in text.split("\n") if line]
        return "".join(f"{json.dumps(line)}\n" for line in _changed(lines, draw)).encode()
    value = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    return json.dumps(_changed(value, draw)).encode()  # JSON is YAML, too


def _changed(value: Any, draw: random.Random) -> Any:
    value = copy.deepcopy(value)
    for _ in range(draw.choice((1, 1, 2, 3))):
        places = list(_places(value))
        if places:
            container, key = draw.choice(places)
            if draw.random() < 0.15:
                del container[key]
            else:
                container[key] = copy.deepcopy(draw.choice(WRONG))
    return value if isinstance(value, (dict, list)) else {}


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each list or object with each index or name in it, at any depth."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in list(pairs):
        yield value, key
        yield from _places(child)
