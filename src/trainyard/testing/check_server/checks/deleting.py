"""Deletion: finalizers, grace, propagation, owners."""

from __future__ import annotations

from typing import Any

from trainyard.testing.check_server import Subject, check
from trainyard.testing.check_server.breaks import answers, drops, ignores, original, replaced, sets, unsent, without

AREA = "deletion"
HELD = ["example.org/held"]
BACKGROUND: dict[str, Any] = {"propagationPolicy": "Background"}
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {"containers": [{"name": "main", "image": "busybox:1"}]},
}


def job(name: str, **meta: Any) -> Any:
    template = {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}
    spec = {"suspend": True, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, **meta}, "spec": spec}


def owner(obj: Any, **more: Any) -> Any:
    """A reference to that object."""
    meta = obj["metadata"]
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": meta["name"], "uid": meta["uid"], **more}


def finalizers(obj: Any) -> list[str]:
    return sorted(obj["metadata"].get("finalizers", []))


@check(
    "A finalizer holds a deleted object: it has a deletionTimestamp, can still be changed, and goes with the last one.",
    area=AREA,
    breaks=drops("metadata.finalizers"),
)
async def held(yard: Subject) -> None:
    await yard.map("one", finalizers=[*HELD, "example.org/too"])
    path = yard.at("configmaps", "one")
    said = (await yard.ask("DELETE", path)).must(200)
    assert said["kind"] == "ConfigMap" and said["metadata"]["deletionTimestamp"].endswith("Z")
    assert said["metadata"]["deletionGracePeriodSeconds"] == 0
    changed = (await yard.ask("PATCH", path, {"data": {"a": "b"}, "metadata": {"finalizers": HELD}})).must(200)
    assert changed["data"] == {"a": "b"} and finalizers(changed) == HELD
    (await yard.ask("PATCH", path, {"metadata": {"finalizers": None}})).must(200)
    (await yard.ask("GET", path)).refused(404, "NotFound")


@check(
    "A second delete of a held object changes nothing.",
    area=AREA,
    breaks=replaced("registry.writes:json_equal", lambda new, old: False, "writes what is the same"),
)
async def twice(yard: Subject) -> None:
    await yard.map("one", finalizers=HELD)
    first = (await yard.ask("DELETE", yard.at("configmaps", "one"))).must(200)
    assert (await yard.ask("DELETE", yard.at("configmaps", "one"))).must(200) == first


@check(
    "Nobody takes a deletionTimestamp back or moves it.",
    area=AREA,
    breaks=sets("metadata.deletionTimestamp", "2001-01-01T00:00:00Z"),
)
async def no_way_back(yard: Subject) -> None:
    await yard.map("one", finalizers=HELD)
    path = yard.at("configmaps", "one")
    gone = (await yard.ask("DELETE", path)).must(200)["metadata"]["deletionTimestamp"]
    for wanted in (None, "2001-01-01T00:00:00Z"):
        said = (await yard.ask("PATCH", path, {"metadata": {"deletionTimestamp": wanted}})).must(200)
        assert said["metadata"]["deletionTimestamp"] == gone != "2001-01-01T00:00:00Z"


@check(
    "Nobody sets a deletionTimestamp on what is not deleted: 422, and on a create it is passed over.",
    area=AREA,
    breaks=replaced("registry.metadata:immutable_problems", lambda sent, old: [], "lets it pass"),
)
async def no_shortcut(yard: Subject) -> None:
    made = await yard.map("one", deletionTimestamp="2001-01-01T00:00:00Z")
    assert "deletionTimestamp" not in made["metadata"]
    wanted = {"metadata": {"deletionTimestamp": "2001-01-01T00:00:00Z"}}
    said = (await yard.ask("PATCH", yard.at("configmaps", "one"), wanted)).refused(422, "Invalid", "field is immutable")
    assert said["details"]["causes"][0]["field"] == "metadata.deletionTimestamp"


@check(
    "A deleted object takes no new finalizers: 422.",
    area=AREA,
    breaks=replaced("registry.admission:_changed_finalizers", lambda new, old: [], "takes new finalizers"),
)
async def no_new_finalizers(yard: Subject) -> None:
    await yard.map("one", finalizers=HELD)
    path = yard.at("configmaps", "one")
    (await yard.ask("DELETE", path)).must(200)
    more = {"metadata": {"finalizers": [*HELD, "example.org/new"]}}
    said = (await yard.ask("PATCH", path, more)).refused(422, "Invalid", "no new finalizers can be added")
    assert said["details"]["causes"][0]["reason"] == "FieldValueForbidden"


@check(
    "An update that takes the last finalizer of a deleted object away is answered with its last form.",
    area=AREA,
    breaks=answers(200, 404),
)
async def last_finalizer(yard: Subject) -> None:
    await yard.map("one", finalizers=HELD)
    path = yard.at("configmaps", "one")
    gone = (await yard.ask("DELETE", path)).must(200)
    said = (await yard.ask("PUT", path, {**gone, "metadata": {**gone["metadata"], "finalizers": []}})).must(200)
    assert said["metadata"]["uid"] == gone["metadata"]["uid"] and "finalizers" not in said["metadata"]
    (await yard.ask("GET", path)).refused(404, "NotFound")


@check(
    "A name is free as soon as its object has gone, and the next has another uid.",
    area=AREA,
    breaks=sets("metadata.uid", "same"),
)
async def again(yard: Subject) -> None:
    first = await yard.map("one")
    (await yard.ask("DELETE", yard.at("configmaps", "one"))).must(200)
    assert (await yard.map("one"))["metadata"]["uid"] != first["metadata"]["uid"]


@check(
    "A pod without a node goes at once, and the answer is the pod.",
    area=AREA,
    breaks=without("metadata.deletionTimestamp"),
    needs=("pods",),
)
async def unbound(yard: Subject) -> None:
    await yard.pod("one")
    said = (await yard.ask("DELETE", yard.at("pods", "one"))).must(200)
    assert said["kind"] == "Pod" and said["metadata"]["deletionGracePeriodSeconds"] == 0
    assert said["metadata"]["deletionTimestamp"]
    (await yard.ask("GET", yard.at("pods", "one"))).refused(404, "NotFound")


_START = original("registry.deletion:begin_deletion")


@check(
    "A pod on a node is given its terminationGracePeriodSeconds: it stays, with the time when that ends.",
    area=AREA,
    breaks=drops("spec.nodeName"),
    needs=("pods",),
)
async def graceful(yard: Subject) -> None:
    made = await yard.pod("one", nodeName="nowhere", terminationGracePeriodSeconds=17)
    said = (await yard.ask("DELETE", yard.at("pods", "one"))).must(200)["metadata"]
    assert (
        said["deletionGracePeriodSeconds"] == 17 and said["deletionTimestamp"] > made["metadata"]["creationTimestamp"]
    )
    assert said["generation"] == made["metadata"]["generation"] + 1
    assert (await yard.ask("GET", yard.at("pods", "one"))).must(200)["metadata"] == said


@check(
    "A second delete shortens a pod's grace, and never lengthens it.",
    area=AREA,
    breaks=drops("gracePeriodSeconds"),
    needs=("pods",),
)
async def shortened(yard: Subject) -> None:
    await yard.pod("one", nodeName="nowhere")
    path = yard.at("pods", "one")
    for asked, wanted in ((None, 30), (60, 30), (10, 10), (20, 10)):
        body = None if asked is None else {"gracePeriodSeconds": asked}
        said = (await yard.ask("DELETE", path, body)).must(200)["metadata"]
        assert said["deletionGracePeriodSeconds"] == wanted, asked


@check(
    "A grace of 0 takes a pod away at once, in the body or in the query.",
    area=AREA,
    breaks=drops("gracePeriodSeconds"),
    needs=("pods",),
)
async def forced(yard: Subject) -> None:
    for name, body, query in (("a", {"gracePeriodSeconds": 0}, {}), ("b", None, {"gracePeriodSeconds": "0"})):
        await yard.pod(name, nodeName="nowhere")
        assert (await yard.ask("DELETE", yard.at("pods", name), body, **query)).must(200)["kind"] == "Pod"
        (await yard.ask("GET", yard.at("pods", name))).refused(404, "NotFound")


@check(
    "A pod that has ended goes at once.",
    area=AREA,
    breaks=replaced(
        "registry.deletion:begin_deletion",
        lambda w, r, old, o, s: _START(w, r, {**old, "status": {}}, o, s),
        "does not look at the phase",
    ),
    needs=("pods",),
)
async def ended(yard: Subject) -> None:
    await yard.pod("one", nodeName="nowhere")
    (await yard.ask("PATCH", yard.at("pods", "one", "status"), {"status": {"phase": "Failed"}})).must(200)
    (await yard.ask("DELETE", yard.at("pods", "one"))).must(200)
    (await yard.ask("GET", yard.at("pods", "one"))).refused(404, "NotFound")


@check("A negative grace is one second.", area=AREA, breaks=drops("gracePeriodSeconds"), needs=("pods",))
async def negative(yard: Subject) -> None:
    await yard.pod("one", nodeName="nowhere")
    said = (await yard.ask("DELETE", yard.at("pods", "one"), {"gracePeriodSeconds": -5})).must(200)
    assert said["metadata"]["deletionGracePeriodSeconds"] == 1


@check(
    "A finalizer holds a pod that is deleted without grace.",
    area=AREA,
    breaks=drops("metadata.finalizers"),
    needs=("pods",),
)
async def held_pod(yard: Subject) -> None:
    await yard.pod("one", nodeName="nowhere", meta={"finalizers": HELD})
    path = yard.at("pods", "one")
    said = (await yard.ask("DELETE", path, {"gracePeriodSeconds": 0})).must(200)["metadata"]
    assert said["deletionGracePeriodSeconds"] == 0 and said["finalizers"] == HELD
    (await yard.ask("PATCH", path, {"metadata": {"finalizers": None}})).must(200)
    (await yard.ask("GET", path)).refused(404, "NotFound")


@check(
    "Foreground and Orphan are finalizers of the deleted object, Background is none; the last word counts.",
    area=AREA,
    breaks=drops("propagationPolicy", "orphanDependents"),
)
async def propagation(yard: Subject) -> None:
    for number, (options, wanted) in enumerate(
        (
            ({"propagationPolicy": "Foreground"}, ["foregroundDeletion"]),
            ({"propagationPolicy": "Orphan"}, ["orphan"]),
            (BACKGROUND, []),
            ({"orphanDependents": True}, ["orphan"]),
            ({}, []),
        )
    ):
        await yard.map(f"m{number}", finalizers=HELD)
        path = yard.at("configmaps", f"m{number}")
        assert finalizers((await yard.ask("DELETE", path, options)).must(200)) == sorted([*HELD, *wanted]), options
        assert finalizers((await yard.ask("DELETE", path, BACKGROUND)).must(200)) == HELD, options


@check(
    "The old orphanDependents=false means Background, and is answered with 202 while something holds the object.",
    area=AREA,
    breaks=answers(202, 200),
)
async def old_word(yard: Subject) -> None:
    await yard.map("one", finalizers=HELD)
    said = (await yard.ask("DELETE", yard.at("configmaps", "one"), {"orphanDependents": False})).must(202)
    assert finalizers(said) == HELD


@check("The propagation may stand in the query.", area=AREA, breaks=ignores("propagationPolicy"))
async def query(yard: Subject) -> None:
    await yard.map("one", finalizers=HELD)
    said = await yard.ask("DELETE", yard.at("configmaps", "one"), propagationPolicy="Orphan")
    assert finalizers(said.must(200)) == sorted([*HELD, "orphan"])


@check(
    "Jobs leave their pods behind unless told otherwise, and a warning says so; Deployments and all others do not.",
    area=AREA,
    breaks=unsent("Warning"),
)
async def defaults(yard: Subject) -> None:
    (await yard.ask("POST", yard.at("jobs"), job("one", finalizers=HELD))).must(201)
    reply = await yard.ask("DELETE", yard.at("jobs", "one"))
    assert finalizers(reply.must(200)) == sorted([*HELD, "orphan"])
    assert "child pods are preserved by default when jobs are deleted" in reply.headers["warning"]
    (await yard.ask("POST", yard.at("jobs"), job("two", finalizers=HELD))).must(201)
    reply = await yard.ask("DELETE", yard.at("jobs", "two"), BACKGROUND)
    assert finalizers(reply.must(200)) == HELD and "warning" not in reply.headers
    spec = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}
    for plural, kind in (("deployments", "Deployment"), ("statefulsets", "StatefulSet"), ("replicasets", "ReplicaSet")):
        obj = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "one", "finalizers": HELD}, "spec": spec}
        (await yard.ask("POST", yard.at(plural), obj)).must(201)
        reply = await yard.ask("DELETE", yard.at(plural, "one"))
        assert finalizers(reply.must(200)) == HELD, plural
        await yard.ask("PATCH", yard.at(plural, "one"), {"metadata": {"finalizers": None}})


@check("The delete of an object with a generation counts as one.", area=AREA, breaks=sets("metadata.generation", 1))
async def generation(yard: Subject) -> None:
    (await yard.ask("POST", yard.at("jobs"), job("one", finalizers=HELD))).must(201)
    assert (await yard.ask("DELETE", yard.at("jobs", "one"), BACKGROUND)).must(200)["metadata"]["generation"] == 2


@check(
    "Options that make no sense are refused: 422 with a cause for a wrong word, 400 for a wrong type or kind.",
    area=AREA,
    breaks=drops("propagationPolicy", "orphanDependents", "kind"),
)
async def nonsense(yard: Subject) -> None:
    await yard.map("one")
    path = yard.at("configmaps", "one")
    for options in ({"propagationPolicy": "X"}, {"propagationPolicy": "Orphan", "orphanDependents": True}):
        said = (await yard.ask("DELETE", path, options)).refused(422, "Invalid")
        assert said["details"]["kind"] == "DeleteOptions"
        assert said["details"]["causes"][0]["field"] == "propagationPolicy"
    said = (await yard.ask("DELETE", path, {"dryRun": ["x"]})).refused(422, "Invalid")
    assert said["details"]["causes"][0]["field"] == "dryRun"
    for body in (b"{", b"[]", b'{"gracePeriodSeconds":"x"}', b'{"kind":"Foo","apiVersion":"v1"}'):
        (await yard.ask("DELETE", path, body, headers={"Content-Type": "application/json"})).refused(400, "BadRequest")
    (await yard.ask("DELETE", path, gracePeriodSeconds="x")).refused(400, "BadRequest")
    (await yard.ask("GET", path)).must(200)
