"""What a server finds on the log of the one before: tokens hold, and the built-in roles are renewed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.server.server_clients import account, pod
from trainyard.objects import Json, decode, encode
from trainyard.server import DiskLog, Server
from trainyard.server.builtin import bootstrap_objects
from trainyard.server.builtin.bootstrap import bootstrap
from trainyard.server.builtin.bootstrap_objects import AUTOUPDATE
from trainyard.server.model.requests import Request, Response

KEY = b"k" * 32
NAMESPACE = "/api/v1/namespaces/default"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
VIEW, DISCOVERY = f"{RBAC}/clusterroles/view", f"{RBAC}/clusterrolebindings/system:discovery"
Life = Callable[..., Server]


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    """Each call is the next server on the same log; the one before was killed."""
    logs: list[DiskLog] = []

    def begin(key: bytes = KEY) -> Server:
        for log in logs:
            log.close()
        logs.append(DiskLog(tmp_path))
        server = Server(log=logs[-1], key=key)
        bootstrap(server._verbs.answer)
        return server

    yield begin
    for log in logs:
        log.close()


def ask(server: Server, method: str, path: str, body: Json | None = None) -> Json:
    answer = server._verbs.answer(Request(method, path, body=b"" if body is None else encode(body)))
    assert isinstance(answer, Response), answer
    return dict(decode(answer.body))


def change(server: Server, path: str, **parts: object) -> Json:
    return ask(server, "PUT", path, {**ask(server, "GET", path), **parts})


def test_a_pods_token_is_valid_after_a_restart(life: Life) -> None:
    server = life()
    ask(server, "POST", f"{NAMESPACE}/serviceaccounts", account("robot"))
    ask(server, "POST", f"{NAMESPACE}/pods", pod("p", serviceAccountName="robot"))
    spec = {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}}
    token_request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    token = ask(server, "POST", f"{NAMESPACE}/serviceaccounts/robot/token", token_request)["status"]["token"]
    user = life()._verbs.tokens.validate(token)
    assert user is not None and user.name == "system:serviceaccount:default:robot"
    assert user.extra["authentication.kubernetes.io/pod-name"] == ("p",)
    assert life(b"x" * 32)._verbs.tokens.validate(token) is None, "another key, another cluster"
    server = life()
    ask(server, "DELETE", f"{NAMESPACE}/serviceaccounts/robot")
    assert life()._verbs.tokens.validate(token) is None, "its account has gone"


def test_a_newer_program_brings_its_rules_subjects_and_labels_along(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = bootstrap_objects.objects()
    with monkeypatch.context() as older:
        older.setattr(bootstrap_objects, "objects", lambda: [(path, _poorer(obj)) for path, obj in now])
        server = life()
        assert ask(server, "GET", VIEW)["rules"] is None
    server = life()
    for path, ours in now:
        stored = ask(server, "GET", f"{path}/{ours['metadata']['name']}")
        assert stored.get("rules") == ours.get("rules") and stored.get("subjects") == ours.get("subjects")
        assert stored["metadata"].get("annotations") == ours["metadata"].get("annotations")
    revision = server.log.revision
    assert life().log.revision == revision, "nothing is missing any more, and something was written"


def _poorer(obj: Json) -> Json:
    """As a program that knew less had it."""
    less = {**obj, "metadata": {"name": obj["metadata"]["name"]}}
    return {**less, **{part: [] for part in ("rules", "subjects") if part in obj}}


def test_changed_and_added_bootstrap_rules_stay(life: Life) -> None:
    server = life()
    mine = {"apiGroups": ["example.org"], "resources": ["things"], "verbs": ["get"]}
    jane = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}
    labels = {"kubernetes.io/bootstrapping": "mine", "team": "a"}
    meta = ask(server, "GET", VIEW)["metadata"]
    rules = ask(server, "GET", VIEW)["rules"]
    change(server, VIEW, rules=[*rules[1:], mine], metadata={**meta, "labels": labels})
    change(server, DISCOVERY, subjects=[jane])
    server = life()
    role, bound = ask(server, "GET", VIEW), ask(server, "GET", DISCOVERY)
    assert role["rules"] == [*rules[1:], mine, rules[0]] and role["metadata"]["labels"] == labels
    assert [subject["name"] for subject in bound["subjects"]] == ["jane", "system:authenticated"]


def test_a_rule_that_a_wider_one_holds_already_is_not_added(life: Life) -> None:
    everything = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    change(life(), VIEW, rules=everything)
    assert ask(life(), "GET", VIEW)["rules"] == everything


def test_a_role_with_autoupdate_false_is_not_reconciled(life: Life) -> None:
    server = life()
    emptied: tuple[tuple[str, Json], ...] = ((VIEW, {"rules": []}), (DISCOVERY, {"subjects": []}))
    for path, parts in emptied:
        meta = ask(server, "GET", path)["metadata"]
        change(server, path, metadata={**meta, "annotations": {AUTOUPDATE: "false"}}, **parts)
    revision = server.log.revision
    server = life()
    assert server.log.revision == revision
    assert not ask(server, "GET", VIEW).get("rules") and not ask(server, "GET", DISCOVERY).get("subjects")


def test_a_deleted_bootstrap_role_is_restored_and_so_is_the_role_of_a_binding(life: Life) -> None:
    server = life()
    ask(server, "DELETE", VIEW)
    bound = ask(server, "GET", DISCOVERY)
    ask(server, "DELETE", DISCOVERY)
    bound = {
        **bound,
        "metadata": {"name": "system:discovery"},
        "roleRef": {**bound["roleRef"], "name": "cluster-admin"},
    }
    ask(server, "POST", f"{RBAC}/clusterrolebindings", bound)
    server = life()
    assert ask(server, "GET", VIEW)["rules"]
    assert ask(server, "GET", DISCOVERY)["roleRef"]["name"] == "system:discovery"
