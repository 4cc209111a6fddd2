"""The differences of two runs of one scenario, as a list of paths.

    step 2: pods/j-worker-0 .spec.containers[pytorch].env[RANK].value: '1' != '2'
    step 2: pods/j-worker-1: {...} != absent

Members of a list that all have a name are matched by it, and their order is compared by itself (`... order`); other
lists are compared by index. A message of ours is the same as the recorded one when it begins with it and goes on after
it: Trainyard's messages go on with the cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from trainyard.objects import Json

LONGEST = 300  # letters of a value that a difference shows
EMPTY = ("labels", "annotations")  # maps that are the same when absent and when empty
OF_THE_JOB_CONTROLLER = (
    # of the pods of a batch Job: not the operator's, and not the same for Kubernetes' controller and ours
    "pods/* .metadata.finalizers",
    "pods/* .metadata.annotations.trainyard.dev/failures-before",
)
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Difference:
    """`step` counts from 0, the creation; `path` is `SECTION/NAME .FIELD...`."""

    step: int
    path: str
    recorded: str
    ours: str

    def __str__(self) -> str:
        return f"step {self.step}: {self.path}: {self.recorded} != {self.ours}"


def differences(recorded: Sequence[Json], ours: Sequence[Json], unstable: Sequence[str] = ()) -> list[Difference]:
    """`recorded` and `ours` are steps with whole snapshots. `unstable`: paths at which the recorded operator itself
    gives one answer or another, as `unstable_paths` lists them."""
    listed: list[Difference] = []
    for number, (left, right) in enumerate(zip(recorded, ours, strict=False)):
        for path, (left_value, right_value) in _step_differences(left, right):
            if any(covers(pattern, path) for pattern in OF_THE_JOB_CONTROLLER):
                continue
            if not any(covers(pattern, f"step {number}: {path}") for pattern in unstable):
                listed.append(Difference(number, path, _shown(left_value), _shown(right_value)))
    if len(recorded) != len(ours):
        listed.append(Difference(min(len(recorded), len(ours)), "steps", str(len(recorded)), str(len(ours))))
    return listed


def unstable_paths(runs: Sequence[Sequence[Json]]) -> list[str]:
    """`step N: PATH` of everything in which several runs of one operator differ."""
    first, *others = runs
    return sorted(
        {f"step {difference.step}: {difference.path}" for other in others for difference in differences(first, other)}
    )


def common_differences(
    recorded: Sequence[Json], runs: Sequence[Sequence[Json]], unstable: Sequence[str] = ()
) -> list[Difference]:
    """The differences of the first run from the recorded one at those paths at which every other run differs, too."""
    first, *others = (differences(recorded, run, unstable) for run in runs)
    everywhere = [{(difference.step, difference.path) for difference in other} for other in others]
    return [
        difference for difference in first if all((difference.step, difference.path) in places for places in everywhere)
    ]


def covers(pattern: str, path: str) -> bool:
    """Whether `pattern` is the path: `**` stands for any text in it, `*` for any without a space. So `pods/*` is a pod
    that only one side has, and not a field of one."""
    parts = {"**": ".*", "*": "[^ ]*"}
    expression = "".join(parts.get(part) or re.escape(part) for part in re.split(r"(\*+)", pattern))
    return re.fullmatch(expression, path) is not None


def _step_differences(left: Json, right: Json) -> Iterator[tuple[str, tuple[Any, Any]]]:
    if "refused" in left and "refused" in right:
        verdicts = _verdict(left["refused"]), _verdict(right["refused"])
        if verdicts[0] != verdicts[1]:
            yield "refused .code", verdicts
    elif "refused" in left or "refused" in right:
        yield "refused", (left.get("refused"), right.get("refused"))
    if left.get("absent") != right.get("absent"):
        yield "absent pods", (left.get("absent"), right.get("absent"))
    yield from _snapshot_differences(left.get("snapshot") or {}, right.get("snapshot") or {})


def _verdict(refused: Json) -> int:
    """The code of a refusal. A webhook's 403 is what a rule of the definition refuses with 422."""
    return 422 if refused["message"].startswith("admission webhook ") else int(refused["code"])


def _snapshot_differences(left: Json, right: Json) -> Iterator[tuple[str, tuple[Any, Any]]]:
    for section in sorted((left.keys() | right.keys()) - {"job", "events"}):
        mine, theirs = left.get(section, {}), right.get(section, {})
        for name in sorted(mine.keys() & theirs.keys()):
            yield from _values(f"{section}/{name} ", mine[name], theirs[name])
        for name in sorted(mine.keys() ^ theirs.keys() if section != "phases" else ()):
            yield f"{section}/{name}", (mine.get(name, _ABSENT), theirs.get(name, _ABSENT))
    yield from _values("job ", left.get("job"), right.get("job"))
    sent, ours = left.get("events", ()), right.get("events", ())
    for line in sent:
        if not any(_is_message(line, own) for own in ours):
            yield f"events {line}", ("sent", "absent")
    for own in ours:
        if not any(_is_message(line, own) for line in sent):
            yield f"events {own}", ("absent", "sent")


def _is_message(recorded: Any, ours: Any) -> bool:
    """Whether our message is the recorded one, or begins with it and goes on after it."""
    if not isinstance(recorded, str) or not isinstance(ours, str):
        return False
    return ours == recorded or ours.startswith((f"{recorded} ", f"{recorded}; "))


def _values(path: str, left: Any, right: Any) -> Iterator[tuple[str, tuple[Any, Any]]]:
    if isinstance(left, dict) and isinstance(right, dict):
        for key in sorted(left.keys() | right.keys()):
            absent = {} if key in EMPTY else _ABSENT
            yield from _values(f"{path}.{key}", left.get(key, absent), right.get(key, absent))
    elif isinstance(left, list) and isinstance(right, list) and (key := _key(left)) and key == _key(right):
        mine, theirs = _by_name(left, key), _by_name(right, key)
        for name in sorted(mine.keys() | theirs.keys()):
            yield from _values(f"{path}[{name}]", mine.get(name, _ABSENT), theirs.get(name, _ABSENT))
        orders = [name for name in mine if name in theirs], [name for name in theirs if name in mine]
        if orders[0] != orders[1]:
            yield f"{path} order", orders
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for index, members in enumerate(zip(left, right, strict=True)):
            yield from _values(f"{path}[{index}]", *members)
    elif left != right and not (path.endswith(".message") and _is_message(left, right)):
        yield path.rstrip(), (left, right)


def _key(items: list[Any]) -> str:
    """The field by which the members of a list are told apart: `name` or `type`."""
    for key in ("name", "type"):
        names = [item.get(key) for item in items if isinstance(item, dict)]
        if items and len(names) == len(items) and all(names):
            return key
    return ""


def _by_name(items: list[Json], key: str) -> dict[str, Json]:
    """The members by their name. A name may occur again, as that of a variable: `NAME 2`."""
    named: dict[str, Json] = {}
    for item in items:
        count = sum(other[key] == item[key] for other in items[: len(named)])
        named[f"{item[key]} {count + 1}" if count else str(item[key])] = item
    return named


def _shown(value: Any) -> str:
    text = "absent" if value is _ABSENT else repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
