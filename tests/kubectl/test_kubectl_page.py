"""docs/kubectl.md is what its stories give. `pytest --update` writes it anew."""

from __future__ import annotations

import pytest
from kubectl_page import PAGE, page
from kubectl_stories import STORIES

from trainyard.server import subresources

VERBS = {
    "create",
    "apply",
    "get",
    "describe",
    "explain",
    "patch",
    "label",
    "annotate",
    "scale",
    "delete",
    "logs",
    "exec",
    "wait",
    "rollout",
    "auth",
    "api-resources",
    "api-versions",
    "cluster-info",
    "config",
    "diff",
    "replace",
    "run",
    "set",
    "cordon",
    "uncordon",
    "taint",
    "drain",
    "cp",
    "port-forward",
    "debug",
    "top",
    "attach",
}


def test_the_page_is_that_of_the_stories(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update"):
        PAGE.write_text(page())
    assert PAGE.read_text() == page()


def test_every_verb_is_in_a_story() -> None:
    told = {line.words.split()[0] for lines in STORIES.values() for line in lines}
    assert told >= VERBS, VERBS - told


def test_what_is_not_served_is_answered_as_the_page_says() -> None:
    text = PAGE.read_text()
    for sentence in (*subresources.UNSERVED.values(), subresources.NO_INPUT):
        start = sentence.split(":")[0].split(";")[0]
        assert start in text or "resources of a running pod" in start, start
