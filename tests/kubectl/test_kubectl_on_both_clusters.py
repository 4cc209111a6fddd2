"""Every line of every story in kubectl_stories.py, at the embedded cluster and at a real one, and what they said."""

from __future__ import annotations

import difflib
import re
import shlex
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.kubectl.kubectl_clusters import MANIFESTS, KubectlCluster, Person, Ran
from tests.kubectl.kubectl_stories import STORIES, Line
from tests.kubectl.mapping import mapped

pytestmark = pytest.mark.cluster


def typed(line: Line, person: Person) -> Ran:
    places = {"m": MANIFESTS, "node": person.node, "ns": person.namespace, "home": person.home}
    words = [_filled(word, places) for word in shlex.split(line.words)]
    if line.patient:
        return person.until(*words, says=line.says)
    return person.run(*words, stdin=line.stdin)


def _filled(word: str, places: dict[str, object]) -> str:
    for name, value in places.items():
        word = word.replace(f"{{{name}}}", str(value))
    return word


def compared(line: Line, ours: str, real: str) -> str:
    """What is wrong with a line, "" when nothing is."""
    if line.differs:
        return "" if ours != real else "they say the same: take `differs` from the table"
    lines = difflib.unified_diff(real.splitlines(), ours.splitlines(), "a real cluster", "here", lineterm="", n=1)
    return "\n".join([*lines][:40])


@pytest.mark.parametrize("story", STORIES)
def test_both_clusters_say_the_same(story: str, embedded: KubectlCluster, real: KubectlCluster) -> None:
    wrong = []
    with embedded.person() as here, real.person() as there, ThreadPoolExecutor(2) as both:
        for line in STORIES[story]:
            ours, theirs = both.map(typed, (line, line), (here, there))
            why = compared(line, mapped(ours, here), mapped(theirs, there))
            if not re.search(line.says.replace("{node}", here.node).replace("{ns}", here.namespace), ours.said):
                why += f"\n    not {line.says!r}: {ours.said}"
            if ours.code != line.code:
                why += f"\n    it ended with {ours.code}, there with {theirs.code}"
            if why:
                wrong.append(f"--- kubectl {line.words}\n{why}")
    assert not wrong, "\n".join(["", *wrong])
