"""A kept answer is used for the question that it answers, and for no other; one that is wrong is noticed."""

from __future__ import annotations

import ast
import copy
import shutil
from pathlib import Path

import pytest

from tests.conformance import CHECKS
from tests.support.kept_answers import TESTS, KeptAnswers, KeptServer, NotKept, check_key, definition_key, mode
from trainyard.objects import Json

DEFINITION: Json = {
    "spec": {"schema": {"type": "object", "description": "A job.", "properties": {"description": {"type": "string"}}}}
}
JOB: Json = {"metadata": {"name": "a"}, "spec": {"size": 1}}
STORED: Json = {"metadata": {"name": "a", "uid": "1", "managedFields": [{}]}, "spec": {"size": 1, "defaulted": True}}


class Real:
    """A server that stores each job with this body."""

    def __init__(self, stored: Json) -> None:
        self.stored = stored

    def ask(self, method: str, path: str, body: Json | None = None) -> tuple[int, Json]:
        return 201, self.stored


def no_server(namespace: str) -> Real:
    pytest.fail("a real server is started")


@pytest.fixture
def answers(tmp_path: Path) -> KeptAnswers:
    """The answers to two creates."""
    path = tmp_path / "answers.jsonl"
    recorded = KeptAnswers(path)
    server = KeptServer(recorded, "test", definition_key(DEFINITION), lambda namespace: Real(STORED), "write", "1.37")
    server.ask("POST", "/jobs", JOB)
    server.ask("POST", "/jobs", {**JOB, "spec": {}})
    recorded.write()
    return KeptAnswers(path)


def kept(answers: KeptAnswers, definition: Json = DEFINITION, server: str = "1.37") -> KeptServer:
    return KeptServer(answers, "test", definition_key(definition), no_server, "use", server)


def test_the_same_requests_are_answered_without_a_server(answers: KeptAnswers) -> None:
    server = kept(answers)
    code, job = server.ask("POST", "/jobs", JOB)
    assert (code, job["spec"]) == (201, STORED["spec"]) and "managedFields" not in job["metadata"]
    again = {"spec": {}, "metadata": {**JOB["metadata"], "uid": "of another run"}}
    assert server.ask("POST", "/jobs", again)[0] == 201


@pytest.mark.parametrize(("spec", "is_same"), [({}, True), ({"defaulted": False}, False)])
def test_an_answer_that_differs_by_its_uid_alone_leaves_the_file_as_it_is(
    answers: KeptAnswers, spec: Json, is_same: bool
) -> None:
    before = answers.path.read_bytes()
    another = {"metadata": {**STORED["metadata"], "uid": "2"}, "spec": {**STORED["spec"], **spec}}
    server = KeptServer(answers, "test", definition_key(DEFINITION), lambda namespace: Real(another), "write", "1.37")
    server.ask("POST", "/jobs", JOB)
    server.ask("POST", "/jobs", {**JOB, "spec": {}})
    answers.write()
    assert (answers.path.read_bytes() == before) is is_same


def with_description(definition: Json) -> None:
    definition["spec"]["schema"]["description"] = "Another text."


def with_another_type(definition: Json) -> None:
    definition["spec"]["schema"]["properties"]["description"] = {"type": "integer"}


def test_a_definition_with_another_description_has_the_same_answers(answers: KeptAnswers) -> None:
    definition = copy.deepcopy(DEFINITION)
    with_description(definition)
    assert kept(answers, definition).ask("POST", "/jobs", JOB)[0] == 201


def test_a_definition_with_another_schema_has_other_answers(answers: KeptAnswers) -> None:
    definition = copy.deepcopy(DEFINITION)
    with_another_type(definition)
    with pytest.raises(NotKept):
        kept(answers, definition).ask("POST", "/jobs", JOB)


def test_another_version_of_the_server_has_other_answers(answers: KeptAnswers) -> None:
    with pytest.raises(NotKept):
        kept(answers, server="1.38").ask("POST", "/jobs", JOB)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("PUT", "/jobs", JOB), ("POST", "/others", JOB), ("POST", "/jobs", {**JOB, "spec": {"size": 2}})],
    ids=["method", "path", "body"],
)
def test_another_request_has_another_answer(answers: KeptAnswers, method: str, path: str, body: Json) -> None:
    with pytest.raises(NotKept):
        kept(answers).ask(method, path, body)


def test_a_request_after_others_than_before_has_another_answer(answers: KeptAnswers) -> None:
    with pytest.raises(NotKept):
        kept(answers).ask("POST", "/jobs", {**JOB, "spec": {}})


def test_a_test_that_begins_again_sends_everything_to_the_server(answers: KeptAnswers) -> None:
    server = KeptServer(
        answers, "test", definition_key(DEFINITION), lambda namespace: Real({**STORED, "spec": {}}), "use", "1.37"
    )
    server.ask_the_real_server()
    assert server.ask("POST", "/jobs", JOB)[1]["spec"] == {}


def test_a_kept_answer_that_is_wrong_fails_the_nightly_run(answers: KeptAnswers) -> None:
    def server(stored: Json) -> KeptServer:
        return KeptServer(
            answers, "test", definition_key(DEFINITION), lambda namespace: Real(stored), "compare", "1.37"
        )

    another = copy.deepcopy(STORED)
    another["metadata"]["uid"] = "2"
    assert server(another).ask("POST", "/jobs", JOB)[0] == 201
    another["spec"]["defaulted"] = False
    with pytest.raises(AssertionError, match="not what testdata/kept has"):
        server(another).ask("POST", "/jobs", JOB)


def test_the_nightly_run_fails_where_no_answer_is_kept(answers: KeptAnswers) -> None:
    server = KeptServer(answers, "test", definition_key(DEFINITION), lambda namespace: Real(STORED), "compare", "1.38")
    with pytest.raises(AssertionError, match="make kept-answers"):
        server.ask("POST", "/jobs", JOB)


def test_another_server_than_the_pinned_one_is_asked_for_everything(
    answers: KeptAnswers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", "/elsewhere")
    changed = {**STORED, "spec": {}}
    server = KeptServer(answers, "test", definition_key(DEFINITION), lambda namespace: Real(changed), mode(), "1.37")
    assert server.ask("POST", "/jobs", JOB)[1]["spec"] == {}
    monkeypatch.setenv("TRAINYARD_KEPT", "write")
    with pytest.raises(AssertionError, match="KUBEBUILDER_ASSETS"):
        mode()


MODULES = sorted({check.body.__module__.rpartition(".")[2] for check in CHECKS})


@pytest.fixture
def copied_tests(tmp_path: Path) -> Path:
    for folder in ("conformance", "support"):
        shutil.copytree(TESTS / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_checks_of_the_same_text_have_the_same_key(copied_tests: Path) -> None:
    assert [check_key(module, copied_tests) for module in MODULES] == [check_key(module) for module in MODULES]


@pytest.mark.parametrize(
    ("module", "file"),
    [
        ("services", "conformance/checks/services.py"),
        ("services", "conformance/checks/core_types.py"),
        ("services", "conformance/cluster.py"),
        ("services", "conformance/responses.py"),
        ("services", "support/control_plane.py"),
        ("services", "support/control_plane_pki.py"),
        ("server_side_apply", "support/schemas.py"),
    ],
)
def test_a_changed_check_or_helper_changes_the_key(copied_tests: Path, module: str, file: str) -> None:
    """checks/services.py uses functions of checks/core_types.py, and responses.py by way of cluster.py."""
    before = check_key(module, copied_tests)
    with (copied_tests / file).open("a") as text:
        text.write("CHANGED = 1\n")
    assert check_key(module, copied_tests) != before


def test_checks_use_nothing_of_the_product_but_how_to_read_objects() -> None:
    """Otherwise a change of the product could change what a check asks, and its key would not. Mutations of our server,
    which are no part of a check, may use it."""
    for path in (TESTS / "conformance" / "checks").glob("*.py"):
        tree = ast.parse(path.read_text())
        product = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("trainyard.")
            for alias in node.names
            if not str(node.module).startswith("trainyard.objects")
        }
        for check in (node for node in tree.body if isinstance(node, ast.AsyncFunctionDef)):
            names = [node for part in check.body for node in ast.walk(part) if isinstance(node, ast.Name)]
            own = {node.id for node in names if isinstance(node.ctx, ast.Store)}
            assert not ({node.id for node in names} - own) & product, f"{path.name}: {check.name}"


def test_another_version_of_the_server_changes_the_key_of_every_check() -> None:
    assert [module for module in MODULES if check_key(module, server="1.38") == check_key(module)] == []
