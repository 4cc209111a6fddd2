"""docs/kubectl.md is generated from the stories. `pytest --update` writes it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.kubectl.kubectl_page import PAGE, page
from tests.kubectl.kubectl_stories import STORIES
from trainyard.server.builtin import pods
from trainyard.server.registry import subresources

OPTIONS = {
    "get": "-o wide|-o yaml|-o json|-o name|-o jsonpath|-o custom-columns|-w|-l|--sort-by|--field-selector|--raw",
    "explain": "--recursive",
    "delete": "--cascade|--grace-period=0 --force|-f|-l|--all",
    "logs": "-f|-p|-c|--since|--tail|--timestamps|-l|job/",
    "exec": "-it",
    "wait": "--for=condition|--for=delete|--for=jsonpath",
    "apply": "--server-side|--prune|--dry-run",
    "replace": "--force",
    "rollout": "status|history|undo|pause|resume|restart",
    "auth": "can-i|whoami",
    "create": "cronjob|quota",
    "set": "image|env",
}
"""What people use of them."""
TOLD_AS_TESTS = ("test_kubectl_while_it_runs.py", "test_kubectl_proxy.py")
VERBS = {
    "events",
    "expose",
    "autoscale",
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
    verbs = {line.command_line.split()[0] for lines in STORIES.values() for line in lines}
    assert verbs >= VERBS, VERBS - verbs


def test_every_option_is_in_a_story() -> None:
    """Or in a test of what goes on while it runs, where the words of a command stand one by one."""
    commands = [f"{line.command_line} " for lines in STORIES.values() for line in lines]
    commands += [text for name in TOLD_AS_TESTS for text in _commands(name)]
    for verb, options in OPTIONS.items():
        for option in options.split("|"):
            matching = [command for command in commands if command.startswith(f"{verb} ") and f" {option}" in command]
            assert matching, f"kubectl {verb} {option}: in no story"
    assert any(command.startswith("proxy ") for command in commands)


def _commands(name: str) -> list[str]:
    """The literal words of each call and each tuple, one text for each."""
    tree = ast.parse(Path(__file__).with_name(name).read_text())
    calls = [node.args for node in ast.walk(tree) if isinstance(node, ast.Call)]
    groups = calls + [node.elts for node in ast.walk(tree) if isinstance(node, ast.Tuple)]
    return [
        " ".join(str(argument.value) for argument in group if isinstance(argument, ast.Constant)) + " "
        for group in groups
    ]


def test_unserved_resources_are_answered_as_the_page_says() -> None:
    text = PAGE.read_text()
    for sentence in (*pods.ALTERNATIVES.values(), subresources.NO_INPUT):
        start = sentence.split(":")[0].split(";")[0]
        assert start in text or "resources of a running pod" in start, start
