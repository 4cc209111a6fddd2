"""Every line of every story in kubectl_stories.py, on the embedded cluster and on a real one, with its output."""

from __future__ import annotations

import difflib
import re
import shlex
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.kubectl.kubectl_clusters import MANIFESTS, KubectlAnswer, KubectlCluster, Person
from tests.kubectl.kubectl_stories import STORIES, Line
from tests.kubectl.mapping import mapped

pytestmark = pytest.mark.cluster


def typed(line: Line, person: Person) -> KubectlAnswer:
    places = {"m": MANIFESTS, "node": person.node, "ns": person.namespace, "home": person.home}
    arguments = [_filled(argument, places) for argument in shlex.split(line.command_line)]
    if line.patient:
        return person.until(*arguments, says=line.says)
    return person.run(*arguments, stdin=line.stdin)


def _filled(argument: str, places: dict[str, object]) -> str:
    for name, value in places.items():
        argument = argument.replace(f"{{{name}}}", str(value))
    return argument


def compared(line: Line, ours: str, real: str) -> str:
    """What is wrong with a line, "" when nothing is."""
    if line.differs:
        return "" if ours != real else "they say the same: take `differs` from the table"
    lines = difflib.unified_diff(real.splitlines(), ours.splitlines(), "a real cluster", "here", lineterm="", n=1)
    return "\n".join([*lines][:40])


@pytest.mark.parametrize("story", STORIES)
def test_both_clusters_print_the_same(story: str, embedded: KubectlCluster, real: KubectlCluster) -> None:
    wrong = []
    with embedded.person() as here, real.person() as there, ThreadPoolExecutor(2) as both:
        for line in STORIES[story]:
            ours, theirs = both.map(typed, (line, line), (here, there))
            why = compared(line, mapped(ours, here), mapped(theirs, there))
            if not re.search(line.says.replace("{node}", here.node).replace("{ns}", here.namespace), ours.output):
                why += f"\n    not {line.says!r}: {ours.output}"
            if ours.code != line.code:
                why += f"\n    it ended with {ours.code}, there with {theirs.code}"
            if why:
                wrong.append(f"--- kubectl {line.command_line}\n{why}")
    assert not wrong, "\n".join(["", *wrong])
