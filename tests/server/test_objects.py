"""One object through its life, by the verbs: create, get, update, patch, status, and every way to be refused."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tests.server.server_clients import CRDS, MAPS, PODS, THINGS, Cluster, config_map, crd, custom_object, pod
from trainyard.objects import Problem
from trainyard.schema.checks import MAX_DEPTH
from trainyard.server.model.requests import MAX_BODY


def test_a_created_object_gets_the_servers_fields(cluster: Cluster) -> None:
    created = cluster.make(MAPS, config_map("a", data={"k": "v"}, metadata={"labels": {"x": "y"}, "junk": 1}))
    meta = created["metadata"]
    assert meta["namespace"] == "default" and meta["resourceVersion"] == "2"
    assert str(UUID(meta["uid"], version=4)) == meta["uid"] and meta["creationTimestamp"] == "2027-01-15T08:00:00Z"
    assert "junk" not in meta and created["data"] == {"k": "v"}
    assert cluster.get(f"{MAPS}/a") == created


def test_a_client_cannot_set_the_servers_fields(cluster: Cluster) -> None:
    meta = {"uid": "mine", "generation": 9, "creationTimestamp": "2000-01-01T00:00:00Z", "deletionTimestamp": None}
    created = cluster.make(PODS, pod("a", metadata=meta))["metadata"]
    assert created["uid"] != "mine" and created["generation"] == 1
    assert created["creationTimestamp"] == "2027-01-15T08:00:00Z" and "deletionTimestamp" not in created


def test_an_object_that_names_a_version_is_not_new(cluster: Cluster) -> None:
    no = cluster.refused("POST", MAPS, config_map("a", metadata={"resourceVersion": "5"}))
    assert no.code == 500 and "resourceVersion should not be set" in no.message


def test_a_status_must_be_an_object(cluster: Cluster) -> None:
    cluster.make(PODS, pod("a"))
    no = cluster.refused("PATCH", f"{PODS}/a/status", {"status": 5}, "application/merge-patch+json")
    assert no.code == 422 and "status: Invalid value: 5: must be an object" in no.message


def test_a_taken_name_is_a_conflict(cluster: Cluster) -> None:
    cluster.make(MAPS, config_map("a"))
    no = cluster.refused("POST", MAPS, config_map("a"))
    assert (no.code, no.reason, no.message) == (409, "AlreadyExists", 'configmaps "a" already exists')
    assert no.details == {"name": "a", "kind": "configmaps"}


def test_a_name_can_be_generated(cluster: Cluster) -> None:
    names = {
        cluster.make(MAPS, config_map("", metadata={"generateName": "cm-"}))["metadata"]["name"] for _ in range(50)
    }
    assert len(names) == 50 and all(name.startswith("cm-") and len(name) == 8 for name in names)


def test_an_unknown_object_is_not_found(cluster: Cluster) -> None:
    for method, body in (("GET", None), ("DELETE", None), ("PUT", config_map("a")), ("PATCH", {})):
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        no = cluster.refused(method, f"{MAPS}/a", body, kind)
        assert (no.code, no.reason, no.message) == (404, "NotFound", 'configmaps "a" not found')
    no = cluster.refused("GET", "/apis/batch/v1/namespaces/default/jobs/j")
    assert no.message == 'jobs.batch "j" not found'
    assert no.details == {"name": "j", "group": "batch", "kind": "jobs"}
    assert cluster.refused("GET", "/apis/nope/v1/things").message == "404 page not found\n"


def test_a_create_in_an_unknown_namespace_is_not_found(cluster: Cluster) -> None:
    no = cluster.refused("POST", "/api/v1/namespaces/nope/configmaps", config_map("a"))
    assert (no.code, no.message) == (404, 'namespaces "nope" not found')


WORDS = {"labels": {"x": 5}}
BAD_BODIES: list[tuple[str, Any, str]] = [
    ("no object", [], "must be a JSON object"),
    ("another kind", {"apiVersion": "v1", "kind": "Pod"}, "does not match the expected one (ConfigMap)"),
    ("another version", {"apiVersion": "v2", "kind": "ConfigMap"}, "does not match the expected one (v1)"),
    ("metadata is a list", {**config_map("a"), "metadata": [1]}, "metadata: Invalid value: [1]: must be an object"),
    ("a name is a number", config_map("a", metadata={"name": 5}), "metadata.name: Invalid value: 5: must be a string"),
    (
        "a label is a number",
        config_map("a", metadata={"labels": {"x": 5}}),
        "metadata.labels.x: Invalid value: 5: must be a string",
    ),
    (
        "finalizers are a word",
        config_map("a", metadata={"finalizers": "x"}),
        'metadata.finalizers: Invalid value: "x": must be a list',
    ),
    (
        "owners are words",
        config_map("a", metadata={"ownerReferences": ["x"]}),
        'metadata.ownerReferences[0]: Invalid value: "x": must be an object',
    ),
    ("another namespace", config_map("a", metadata={"namespace": "other"}), "does not match the namespace sent"),
]


@pytest.mark.parametrize(("body", "text"), [pytest.param(*row[1:], id=row[0]) for row in BAD_BODIES])
def test_a_body_that_cannot_be_read_as_the_object_is_a_bad_request(cluster: Cluster, body: Any, text: str) -> None:
    no = cluster.refused("POST", MAPS, body)
    assert (no.code, no.reason) == (400, "BadRequest")
    assert text in no.message


INVALID: list[tuple[str, dict[str, Any], Problem]] = [
    ("a name", config_map("A"), Problem("metadata.name", 'Invalid value: "A": a lowercase RFC 1123 subdomain must')),
    ("a label", config_map("a", metadata={"labels": {"x": "a b"}}),
     Problem("metadata.labels", 'Invalid value: "a b": a valid label must be an empty string or consist of')),
    ("a label key", config_map("a", metadata={"labels": {"x y": "a"}}),
     Problem("metadata.labels", 'Invalid value: "x y": name part must consist of')),
    ("an annotation", config_map("a", metadata={"annotations": {"x": "a" * 300_000}}),
     Problem("metadata.annotations", "Too long: may not be more than 262144 bytes")),
    ("an owner", config_map("a", metadata={"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x"}]}),
     Problem("metadata.ownerReferences[0].uid", "Required value: must not be empty")),
]  # fmt: skip


@pytest.mark.parametrize(("body", "problem"), [pytest.param(*row[1:], id=row[0]) for row in INVALID])
def test_an_object_that_is_wrong_is_invalid_with_its_causes(cluster: Cluster, body: Any, problem: Problem) -> None:
    no = cluster.refused("POST", MAPS, body)
    assert (no.code, no.reason) == (422, "Invalid")
    assert no.details is not None
    (cause,) = no.details["causes"]
    assert cause["field"] == problem.path and cause["message"].startswith(problem.text)
    assert no.message.startswith(f'ConfigMap "{body["metadata"]["name"]}" is invalid: {problem.path}: ')


def test_all_problems_are_in_one_status(cluster: Cluster) -> None:
    cluster.make(CRDS, crd())
    no = cluster.refused("POST", THINGS, custom_object("A", replicas="two", mode="odd"))
    assert no.details is not None
    assert [(cause["field"], cause["reason"]) for cause in no.details["causes"]] == [
        ("metadata.name", "FieldValueInvalid"),
        ("spec.replicas", "FieldValueTypeInvalid"),
        ("spec.mode", "FieldValueNotSupported"),
    ]


def test_a_name_is_needed(cluster: Cluster) -> None:
    no = cluster.refused("POST", MAPS, {"apiVersion": "v1", "kind": "ConfigMap"})
    assert no.code == 422 and "metadata.name: Required value" in no.message


def test_an_object_that_is_too_deep_is_refused(cluster: Cluster) -> None:
    deep: Any = 1
    for _ in range(MAX_DEPTH):
        deep = [deep]
    assert "nested deeper than" in cluster.refused("POST", MAPS, config_map("a", extra=deep)).message
    body = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    with pytest.raises(Exception, match=r"unrecognized|nested"):
        cluster.raw("POST", MAPS, body, "application/json")


def test_a_body_that_is_too_large_or_of_another_type_is_refused(cluster: Cluster) -> None:
    with pytest.raises(Exception, match="limit is 3145728"):
        cluster.raw("POST", MAPS, b" " * (MAX_BODY + 1), "application/json")
    no = cluster.refused("POST", MAPS, config_map("a"), "application/x-www-form-urlencoded")
    assert (no.code, no.reason) == (415, "UnsupportedMediaType")
    cluster.make(MAPS, config_map("a"))
    no = cluster.refused("PATCH", f"{MAPS}/a", {}, "text/plain")
    assert no.code == 415 and "application/merge-patch+json" in no.message


def test_methods_that_make_no_sense_are_refused(cluster: Cluster) -> None:
    cluster.make(MAPS, config_map("a"))
    for method, path in (("POST", f"{MAPS}/a"), ("PUT", MAPS), ("POST", "/api/v1/configmaps"), ("TRACE", f"{MAPS}/a"),
                         ("DELETE", f"{PODS}/x/status"), ("POST", "/version")):  # fmt: skip
        assert cluster.refused(method, path, {}).code == 405, (method, path)


def test_an_update_needs_the_current_resource_version(cluster: Cluster) -> None:
    created = cluster.make(MAPS, config_map("a", data={"k": "1"}))
    changed = cluster.ask("PUT", f"{MAPS}/a", {**created, "data": {"k": "2"}})
    assert changed["metadata"]["resourceVersion"] == "3" and changed["metadata"]["uid"] == created["metadata"]["uid"]
    no = cluster.refused("PUT", f"{MAPS}/a", {**created, "data": {"k": "3"}})
    assert (no.code, no.reason) == (409, "Conflict")
    assert no.message == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    assert cluster.ask("PUT", f"{MAPS}/a", config_map("a", data={"k": "4"}))["data"] == {"k": "4"}


def test_a_custom_resource_cannot_be_replaced_blindly(cluster: Cluster) -> None:
    cluster.make(CRDS, crd())
    cluster.make(THINGS, custom_object("a"))
    no = cluster.refused("PUT", f"{THINGS}/a", custom_object("a", replicas=2))
    assert (
        no.code == 422 and "metadata.resourceVersion: Invalid value: 0: must be specified for an update" in no.message
    )


def test_a_patch_can_be_a_fence(cluster: Cluster) -> None:
    created = cluster.make(MAPS, config_map("a"))
    version = {"resourceVersion": created["metadata"]["resourceVersion"]}
    assert cluster.merge(f"{MAPS}/a", {"metadata": version, "data": {"x": "1"}})["data"] == {"x": "1"}
    kind = "application/merge-patch+json"
    assert cluster.refused("PATCH", f"{MAPS}/a", {"metadata": version, "data": {"x": "2"}}, kind).code == 409
    # even when it would change nothing
    assert cluster.refused("PATCH", f"{MAPS}/a", {"metadata": version, "data": {"x": "1"}}, kind).code == 409
    other = {"metadata": {"uid": "other"}}
    assert "metadata.uid: Invalid value" in cluster.refused("PATCH", f"{MAPS}/a", other, kind).message


def test_a_write_without_a_change_gets_no_new_revision(cluster: Cluster) -> None:
    created = cluster.make(MAPS, config_map("a", data={"x": "1"}))
    before = cluster.log.revision
    assert cluster.ask("PUT", f"{MAPS}/a", created) == created
    assert cluster.merge(f"{MAPS}/a", {"data": {"x": "1"}}) == created
    assert cluster.log.revision == before


def test_a_change_of_type_alone_is_a_change(cluster: Cluster) -> None:
    cluster.make(CRDS, crd())
    cluster.make(THINGS, custom_object("a", template={"x": 1}))
    changed = cluster.merge(f"{THINGS}/a", {"spec": {"template": {"x": True}}})
    assert changed["spec"]["template"]["x"] is True and changed["metadata"]["generation"] == 2


def test_a_json_patch_is_applied(cluster: Cluster) -> None:
    cluster.make(MAPS, config_map("a", data={"x": "1"}))
    kind = "application/json-patch+json"
    steps = [{"op": "test", "path": "/data/x", "value": "1"}, {"op": "replace", "path": "/data/x", "value": "2"}]
    assert cluster.ask("PATCH", f"{MAPS}/a", steps, kind)["data"] == {"x": "2"}
    assert cluster.refused("PATCH", f"{MAPS}/a", steps, kind).code == 422
    assert cluster.refused("PATCH", f"{MAPS}/a", {"op": "x"}, kind).code == 400


def test_a_patch_cannot_rename_or_move_an_object(cluster: Cluster) -> None:
    cluster.make(MAPS, config_map("a"))
    kind = "application/merge-patch+json"
    assert cluster.refused("PATCH", f"{MAPS}/a", {"metadata": {"name": "b"}}, kind).code == 400
    assert cluster.refused("PATCH", f"{MAPS}/a", {"kind": "Pod"}, kind).code == 422
    assert cluster.refused("PATCH", f"{MAPS}/a", {"metadata": {"namespace": "b"}}, kind).code == 400
    assert cluster.refused("PATCH", f"{MAPS}/a", {"metadata": {"name": None}}, kind).code == 400
    kept = cluster.merge(f"{MAPS}/a", {"metadata": {"creationTimestamp": None}})
    assert kept["metadata"]["creationTimestamp"] and kept["metadata"]["name"] == "a"


def test_status_has_a_path_of_its_own(cluster: Cluster) -> None:
    cluster.make(CRDS, crd())
    created = cluster.make(THINGS, {**custom_object("a"), "status": {"state": "forged"}})
    assert "status" not in created
    response = cluster.merge(f"{THINGS}/a/status", {"status": {"state": "Running"}, "spec": {"replicas": 7}})
    assert response["status"] == {"state": "Running"} and response["spec"]["replicas"] == 1
    assert response["metadata"]["generation"] == 1
    changed = cluster.merge(f"{THINGS}/a", {"spec": {"replicas": 2}, "status": {"state": "forged"}})
    assert changed["status"] == {"state": "Running"} and changed["metadata"]["generation"] == 2
    labelled = cluster.merge(f"{THINGS}/a/status", {"metadata": {"labels": {"x": "y"}}})
    assert "labels" not in labelled["metadata"]
    assert cluster.get(f"{THINGS}/a/status")["status"] == {"state": "Running"}


def test_a_resource_without_status_subresource_has_no_such_path(cluster: Cluster) -> None:
    cluster.make(MAPS, config_map("a"))
    assert cluster.refused("GET", f"{MAPS}/a/status").code == 404


def test_the_generation_counts_versions_of_the_spec_only(cluster: Cluster) -> None:
    cluster.make(CRDS, crd())
    cluster.make(THINGS, custom_object("a"))
    assert cluster.merge(f"{THINGS}/a", {"metadata": {"labels": {"a": "b"}}})["metadata"]["generation"] == 1
    assert cluster.merge(f"{THINGS}/a", {"spec": {"replicas": 5}})["metadata"]["generation"] == 2


def test_a_dry_run_does_everything_but_write(cluster: Cluster) -> None:
    before = cluster.log.revision
    assert cluster.make(MAPS, config_map("a"), dryRun="All")["metadata"]["uid"]
    assert cluster.log.revision == before and cluster.refused("GET", f"{MAPS}/a").code == 404
    cluster.make(MAPS, config_map("a"))
    cluster.delete(f"{MAPS}/a", dryRun="All")
    assert cluster.get(f"{MAPS}/a")
    assert cluster.refused("POST", MAPS, config_map("b"), dryRun="maybe").code == 422


def test_requests_are_counted_by_verb_and_resource(cluster: Cluster) -> None:
    cluster.verbs.counts.clear()
    cluster.make(PODS, pod("a"))
    cluster.get(PODS)
    cluster.get(f"{PODS}/a")
    cluster.refused("GET", f"{PODS}/a/made-up")
    cluster.watch(PODS)
    cluster.merge(f"{PODS}/a/status", {"status": {"phase": "Running"}})
    cluster.delete(f"{PODS}/a")
    cluster.get("/version")
    assert dict(cluster.verbs.counts) == {
        ("create", "pods"): 1,
        ("list", "pods"): 1,
        ("get", "pods"): 2,
        ("watch", "pods"): 1,
        ("patch", "pods/status"): 1,
        ("delete", "pods"): 1,
    }


def test_the_callers_checks_run_last() -> None:
    def check(new: dict[str, Any], old: dict[str, Any] | None) -> list[Problem]:
        if old is not None and new["spec"]["replicas"] < old["spec"]["replicas"]:
            return [Problem("spec.replicas", "Invalid value: may not shrink; make a new one")]
        return []

    cluster = Cluster({("example.org", "Thing"): check})
    cluster.make(CRDS, crd())
    cluster.make(THINGS, custom_object("a", replicas=3))
    no = cluster.refused("PATCH", f"{THINGS}/a", {"spec": {"replicas": 2}}, "application/merge-patch+json")
    assert no.code == 422 and "may not shrink" in no.message
    assert (
        "must be an integer"
        in cluster.refused("PATCH", f"{THINGS}/a", {"spec": {"replicas": "x"}}, "application/merge-patch+json").message
    )
    # the status is not a matter of cross-field rules
    cluster.merge(f"{THINGS}/a/status", {"status": {"x": 1}, "spec": {"replicas": 0}})
