"""Kept sequences: what a server once got wrong, with what the real API server says.

A case is a file NAME.jsonl. Its first line says why it is kept; each further line is a step and its normalized answer.
`check` plays cases on any server, so that the embedded one is held to them without a control plane, and the real one
shows that the recordings still hold.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.differential.allowed import ALLOWED
from tests.differential.compare import Difference, differences
from tests.differential.fuzz import Found, first
from tests.differential.steps import Step
from tests.differential.target import Target
from trainyard.objects import Json, decode, encode

FOLDER = Path(__file__).parents[2] / "testdata" / "differential"
OPEN = FOLDER / "open.txt"
"""Causes that are known and not mended yet, one a line. Written by `--open`; none may be added by hand."""


@dataclass(frozen=True, slots=True)
class Case:
    """A sequence and the real answers to it."""

    name: str
    why: str
    steps: Sequence[Step]
    answers: Sequence[Json]

    def text(self) -> str:
        lines: list[Json] = [{"why": self.why}]
        pairs = zip(self.steps, self.answers, strict=True)
        lines += [{"step": step.json(), "answer": answer} for step, answer in pairs]
        return "".join(encode(line).decode() + "\n" for line in lines)


def read(folder: Path = FOLDER) -> list[Case]:
    return [_read(path) for path in sorted(folder.glob("*.jsonl"))]


def _read(path: Path) -> Case:
    head, *lines = [decode(line) for line in path.read_bytes().splitlines()]
    steps = [Step(**line["step"]) for line in lines]
    return Case(path.stem, head["why"], steps, [line["answer"] for line in lines])


async def recorded(real: Target, finding: Found) -> Case:
    """What was found, as a case."""
    difference = finding.difference
    slug = re.sub(r"\W+", "-", f"{difference.step.do} {difference.step.resource} {_main_field(difference)}".lower())
    answers = await real.play(finding.steps)
    return Case(slug.strip("-")[:90].rstrip("-"), str(difference), finding.steps, answers)


def _main_field(difference: Difference) -> str:
    """A short text that distinguishes this difference from others."""
    if difference.path == "code":
        text = f"{difference.real}"
    else:
        text = f"{difference.path} {difference.real if isinstance(difference.real, str | int) else ''}"
    return re.sub(r"body |<[^>]*>|fuzz.example.org|is invalid", " ", text.replace("body.", ""))


def known(path: Path = OPEN) -> frozenset[str]:
    return frozenset(path.read_text().splitlines())


def keep(case: Case, folder: Path) -> Path:
    path = folder / f"{case.name}.jsonl"
    path.write_text(case.text())
    return path


async def check(target: Target, cases: Iterable[Case]) -> dict[str, list[Difference]]:
    """By name, what is not as recorded and not allowed. A case is played up to the first such answer."""

    async def replay(case: Case) -> list[Difference]:
        answers = await target.play(case.steps)
        return first(differences(case.steps, case.answers, answers), ALLOWED, Counter())

    listed = list(cases)
    results = await asyncio.gather(*(replay(case) for case in listed))
    return {case.name: differing for case, differing in zip(listed, results, strict=True)}
