"""The recorded answers of Kubeflow's operators: `testdata/drop_in/KIND/SCENARIO.json`.

    {"scenario": "pytorchjob/simple", "operator": "training-operator v1.9.4", "gang": "", "objects": [],
     "manifest": {...},
     "steps": [{"do": {"create": "job"}, "snapshot": {...}}, ...],
     "unstable": ["step 2: job .status.conditions order", ...]}

- An object of a snapshot, or its events, that are as in the snapshot of the step before are written `"="`.
- A step that was refused has `"refused": {"code": 403, "message": ...}`. A job that was not created has no snapshot.
- `unstable`: paths at which two runs of the same operator gave different answers (Go's maps have no order).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.drop_in.scenario import Scenario
from trainyard.objects import Json

FOLDER = Path(__file__).resolve().parents[2] / "testdata" / "drop_in"
SAME = "="
WIDTH = 140


@dataclass(frozen=True, slots=True)
class Recording:
    """One file, its snapshots whole."""

    scenario: str
    operator: str
    gang: str
    objects: list[Json]
    manifest: Json
    steps: list[Json]
    unstable: list[str]

    @property
    def kind(self) -> str:
        return self.scenario.partition("/")[0]

    def as_scenario(self) -> Scenario:
        kind, _, name = self.scenario.partition("/")
        operator = self.operator.partition(" ")[0]
        return Scenario(kind, name, self.manifest, tuple(self.acts), operator, self.gang, tuple(self.objects))

    def is_of_the_same(self, other: Recording) -> bool:
        """Whether both are answers of one operator to one scenario."""
        return replace(self, steps=[], unstable=[]) == replace(other, steps=[], unstable=[]) and self.acts == other.acts

    @property
    def acts(self) -> list[Json]:
        """The steps to be done, without the answers and the creation."""
        return [step["do"] for step in self.steps[1:]]


def paths() -> list[Path]:
    return sorted(FOLDER.glob("*/*.json"))


def load(path: Path) -> Recording:
    content = json.loads(path.read_text())
    return Recording(**{**content, "steps": expanded(content["steps"])})


def save(recording: Recording, folder: Path = FOLDER) -> None:
    path = folder / f"{recording.scenario}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "scenario": recording.scenario,
        "operator": recording.operator,
        "gang": recording.gang,
        "objects": recording.objects,
        "manifest": recording.manifest,
        "steps": abridged(recording.steps),
        "unstable": recording.unstable,
    }
    path.write_text(formatted(content) + "\n")


def formatted(value: Any, depth: int = 0) -> str:
    """JSON with sorted keys; what fits into a line of WIDTH letters is one line."""
    line = json.dumps(value, sort_keys=True, ensure_ascii=False)
    if len(line) + depth <= WIDTH or not isinstance(value, dict | list) or not value:
        return line
    indent = "\n" + " " * (depth + 1)
    if isinstance(value, dict):
        open_, close = "{}"
        parts = [f"{json.dumps(key)}: {formatted(value[key], depth + 1)}" for key in sorted(value)]
    else:
        open_, close = "[]"
        parts = [formatted(part, depth + 1) for part in value]
    return open_ + indent + f",{indent}".join(parts) + "\n" + " " * depth + close


def abridged(steps: Sequence[Json]) -> list[Json]:
    """The steps, with "=" for each object that is as it was a step before."""
    return _mapped(steps, lambda value, before: SAME if value == before else value)


def expanded(steps: Sequence[Json]) -> list[Json]:
    """The inverse of `abridged`."""
    return _mapped(steps, lambda value, before: before if value == SAME else value)


def _mapped(steps: Sequence[Json], change: Any) -> list[Json]:
    """Each value of each section changed, given the value that the whole snapshot of the step before has there."""
    result: list[Json] = []
    whole: Json = {}  # the snapshot of the step before, whole
    for step in steps:
        if "snapshot" not in step:
            result.append(step)
            continue
        changed: Json = {}
        now: Json = {}
        for section, value in step["snapshot"].items():
            before = whole.get(section)
            if isinstance(value, dict) and section not in ("job", "phases"):
                changed[section], now[section] = {}, {}
                for name, item in value.items():
                    previous = before.get(name) if isinstance(before, dict) else None
                    changed[section][name] = change(item, previous)
                    now[section][name] = previous if item == SAME else item
            else:
                changed[section] = change(value, before)
                now[section] = before if value == SAME else value
        whole = now
        result.append({**step, "snapshot": changed})
    return result
