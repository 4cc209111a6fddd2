"""A seeded sequence of requests. The same seed and number give the same steps, for ever.

It knows what it has asked for and not what was answered: a few names, taken again and again, so that requests meet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.differential import bodies
from tests.differential.steps import Step
from trainyard.objects import Json

MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
STRATEGIC, APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
ACCEPTS = (
    TABLE,
    f"{TABLE},application/json",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/json",
    "*/*",
    "text/plain",
    "application/json;as=Nothing;v=v1;g=meta.k8s.io",
)


@dataclass(frozen=True, slots=True)
class Subject:
    """A resource to ask for."""

    api_version: str
    kind: str
    plural: str
    body: Callable[[Random], Json]
    status: Callable[[Random], Json] | None = None

    @property
    def path(self) -> str:
        root = "/apis/" if "/" in self.api_version else "/api/"
        return f"{root}{self.api_version}/namespaces/{{ns}}/{self.plural}"


SUBJECTS = (
    Subject("v1", "ConfigMap", "configmaps", bodies.config_map),
    Subject("v1", "Pod", "pods", bodies.pod, bodies.pod_status),
    Subject("batch/v1", "Job", "jobs", bodies.job, bodies.job_status),
    Subject(f"{bodies.GROUP}/v1", "Gadget", "gadgets", bodies.gadget, bodies.gadget_status),
    Subject(f"{bodies.GROUP}/v1beta1", "Gadget", "gadgets", bodies.gadget, bodies.gadget_status),
    Subject(f"{bodies.GROUP}/v1", "Gizmo", "gizmos", bodies.gizmo),
)
NAMES = ("a", "b", "c")
LABELS: tuple[Json, ...] = ({"app": "x"}, {"app": "y", "tier": "z"}, {"tier": ""}, {})


class Author:
    """Writes one sequence."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.subject = rng.choice(SUBJECTS)
        self.steps: list[Step] = []
        self.names = NAMES[: rng.randint(1, 3)]
        self.objects: list[int] = []  # steps whose answer is an object
        self.pages: list[int] = []
        self.lists: list[int] = []  # their versions are for reading: other sequences write, too

    def write(self, length: int) -> list[Step]:
        self._add(self.create(good=True))
        moves = [(getattr(self, name), weight) for name, weight in WEIGHTS.items()]
        while len(self.steps) < length:
            (move,) = self.rng.choices([candidate for candidate, _ in moves], [weight for _, weight in moves])
            self._add(move())
        return self.steps

    def _add(self, step: Step | None) -> None:
        if step is None:
            return
        if "limit" in step.query:
            self.pages.append(len(self.steps))
        elif step.do == "GET" and step.path == self.subject.path:
            if not step.watches:
                self.lists.append(len(self.steps))
        elif step.do != "DELETE" and not step.watches:
            self.objects.append(len(self.steps))
        self.steps.append(step)

    # --- words

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def name(self) -> str:
        return self.rng.choice(self.names)

    def earlier(self, field: str) -> str:
        """A reference to what an earlier step gave."""
        return f"{{{self.rng.choice(self.objects)}.{field}}}"

    def list_version(self) -> str:
        """The version of a list that an earlier step gave, or any."""
        return f"{{{self.rng.choice(self.lists)}.version}}" if self.lists and self.chance(0.3) else self.version()

    def path(self, below: str = "") -> str:
        return f"{self.subject.path}/{self.name()}{below}"

    def version(self) -> str:
        return self.rng.choice([self.earlier("version"), self.earlier("version"), "1", "0", "", "abc", "99999999999"])

    def uid(self) -> str:
        return self.earlier("uid") if self.chance(0.8) else "00000000-0000-0000-0000-000000000000"

    def meta(self) -> Json:
        rng = self.rng
        return bodies.some(rng, {
            "labels": dict(rng.choice(LABELS)),
            "annotations": {"note": rng.choice(["", "some"])},
            "finalizers": rng.choice([["example.org/hold"], ["orphan"], ["foregroundDeletion"], []]),
            "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": self.uid()}]
            if self.objects
            else [],
            "uid": "11111111-1111-1111-1111-111111111111",
            "generation": 7,
            "creationTimestamp": "2020-01-01T00:00:00Z",
        }, 2)  # fmt: skip

    def whole(self, name: str) -> Json:
        """A good object."""
        meta = self.meta()
        meta.pop("uid", None)
        subject = self.subject
        return {
            "apiVersion": subject.api_version,
            "kind": subject.kind,
            "metadata": {"name": name, **meta},
            **subject.body(self.rng),
        }

    def writing(self) -> dict[str, str]:
        """Options of a write."""
        query: dict[str, str] = {}
        if self.chance(0.12):
            query["dryRun"] = self.rng.choice(["All", "All", "All", "Some"])
        if self.chance(0.25):
            query["fieldValidation"] = self.rng.choice(["Strict", "Strict", "Warn", "Ignore", "Odd"])
        if self.chance(0.1):
            query["fieldManager"] = "fuzz"
        return query

    def accept(self) -> str:
        return self.rng.choice(ACCEPTS) if self.chance(0.3) else ""

    # --- moves

    def create(self, good: bool = False) -> Step:
        rng, path = self.rng, self.subject.path
        if not good and self.chance(0.06):
            return Step("POST", path, self.writing(), raw=rng.choice(bodies.NO_OBJECTS))
        obj = self.whole(self.name())
        if not good:
            obj = self.odd(obj)
        meta = obj.get("metadata")
        if isinstance(meta, dict) and self.chance(0.1):
            meta.pop("name", None)
            # Each step's own, so that the order in a list is no matter of chance.
            meta["generateName"] = f"{'defghijklm'[len(self.steps)]}{rng.choice(['gen-', '', 'x' * 60])}"
        return Step("POST", path, self.writing(), obj, accept=self.accept() if self.chance(0.2) else "")

    def odd(self, obj: Json) -> Json:
        """Sometimes something is wrong with it."""
        if self.chance(0.4):
            return bodies.spoiled(self.rng, obj)
        if self.chance(0.15):
            odd: list[tuple[str, Any]] = [
                ("kind", "Other"), ("apiVersion", "v9"), ("kind", ""), ("apiVersion", ""), ("metadata", None),
            ]  # fmt: skip
            name, value = self.rng.choice(odd)
            return {**obj, name: value}
        if self.chance(0.15):
            more: list[Json] = [
                {"namespace": "elsewhere"}, {"namespace": "{ns}"}, {"name": "Bad_Name"}, {"name": "x" * 70},
                {"resourceVersion": "7"}, {"name": ""}, {"labels": {"a b": "c"}}, {"labels": {"a": "b c"}},
                {"finalizers": ["nodomain"]}, {"annotations": {"": "x"}},
            ]  # fmt: skip
            return {**obj, "metadata": {**obj["metadata"], **self.rng.choice(more)}}
        return obj

    def get(self) -> Step:
        return Step("GET", self.path(), accept=self.accept())

    def listing(self) -> Step:
        rng, query = self.rng, {}
        if self.chance(0.4):
            selectors = [
                "app=x",
                "app in (x,y)",
                "app!=x",
                "!tier",
                "tier",
                "app notin (x),tier",
                "app==",
                "a b",
                "=",
                "",
            ]
            query["labelSelector"] = rng.choice(selectors)
        if self.chance(0.25):
            fields = ["metadata.name=a", "metadata.name!=a", "metadata.namespace={ns}", "spec.mode=fast", "x=y"]
            query["fieldSelector"] = rng.choice([*fields, "status.phase=Pending", "spec.nodeName=", "metadata.name"])
        if self.chance(0.3):
            query["limit"] = rng.choice(["1", "1", "2", "0", "x", "-1"])
        if self.chance(0.2):
            query["resourceVersion"] = self.list_version()
            if self.chance(0.7):
                query["resourceVersionMatch"] = rng.choice(["Exact", "NotOlderThan", "Odd"])
        return Step("GET", self.subject.path, query, accept=self.accept())

    def more(self) -> Step | None:
        """The next page of an earlier list."""
        if not self.pages:
            return None
        token = f"{{{self.rng.choice(self.pages)}.continue}}" if self.chance(0.9) else "nonsense"
        query = {"continue": token, **({"limit": "1"} if self.chance(0.7) else {})}
        return Step("GET", self.subject.path, query, accept=self.accept())

    def update(self) -> Step:
        obj = self.odd(self.whole(self.name()))
        meta = obj.get("metadata")
        if isinstance(meta, dict):
            if self.chance(0.5):
                meta["resourceVersion"] = self.version()
            if self.chance(0.15):
                meta["uid"] = self.uid()
        name = meta["name"] if isinstance(meta, dict) and meta.get("name") in self.names and self.chance(0.9) else "a"
        return Step("PUT", f"{self.subject.path}/{name}", self.writing(), obj)

    def status(self) -> Step:
        name, subject = self.name(), self.subject
        path = f"{subject.path}/{name}/status"
        if self.chance(0.15):
            return Step("GET", path, accept=self.accept())
        status = subject.status(self.rng) if subject.status else {"x": 1}
        if self.chance(0.3):
            status = bodies.spoiled(self.rng, status)
        if self.chance(0.5):
            kind = self.rng.choice([MERGE, MERGE, STRATEGIC])
            return Step("PATCH", path, self.writing(), {"status": status, **self.also()}, type=kind)
        obj = {**self.whole(name), "status": status}
        if self.chance(0.6):
            obj["metadata"]["resourceVersion"] = self.version()
        return Step("PUT", path, self.writing(), obj)

    def also(self) -> Json:
        """What a status write should not change."""
        return {"metadata": self.meta(), "spec": {"replicas": 9}} if self.chance(0.2) else {}

    def scale(self) -> Step:
        path = self.path("/scale")
        if self.chance(0.3):
            return Step("GET", path, accept=self.accept() if self.chance(0.3) else "")
        number: Any = self.rng.choice([0, 1, 2, 5, -1, 101, "3", None, 1.5])
        if self.chance(0.5):
            return Step("PATCH", path, self.writing(), {"spec": {"replicas": number}}, type=MERGE)
        name = path.split("/")[-2]
        obj: Json = {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {"name": name, "namespace": "{ns}"},
            "spec": {"replicas": number},
        }
        if self.chance(0.3):
            obj["metadata"]["resourceVersion"] = self.version()
        return Step("PUT", path, self.writing(), obj if self.chance(0.8) else bodies.spoiled(self.rng, obj))

    def merge(self) -> Step:
        patch = self.part()
        kind = self.rng.choice([MERGE, MERGE, STRATEGIC])
        if self.chance(0.05):
            return Step("PATCH", self.path(), self.writing(), raw=self.rng.choice(bodies.NO_OBJECTS), type=kind)
        return Step("PATCH", self.path(), self.writing(), patch, type=kind)

    def part(self) -> Json:
        """A piece of an object, sometimes with nulls."""
        whole = self.whole("a")
        del whole["metadata"]["name"], whole["apiVersion"], whole["kind"]
        part = {name: whole[name] for name in whole if self.chance(0.7)}
        if self.chance(0.4):
            part = bodies.spoiled(self.rng, part)
        if self.chance(0.15):
            meta = part.get("metadata")
            part["metadata"] = {**(meta if isinstance(meta, dict) else {}), "resourceVersion": self.version()}
        return part

    def edit(self) -> Step:
        """A JSON patch."""
        rng = self.rng
        places = ["/metadata/labels", "/metadata/labels/app", "/spec/replicas", "/data", "/data/a", "/spec/tags/0",
                  "/spec/words/-", "/metadata/annotations", "/spec/parts/0/size", "/spec/suspend", "/x", "",
                  "/spec/containers/0/image", "/metadata/finalizers", "/metadata/finalizers/0", "/spec/mode",
                  "/metadata/name", "/metadata/resourceVersion", "no-slash"]  # fmt: skip
        operations = []
        for _ in range(rng.randint(1, 2)):
            word = rng.choice(["add", "add", "replace", "remove", "test", "move", "copy", "odd"])
            operation: Json = {"op": word, "path": rng.choice(places)}
            if word in ("add", "replace", "test"):
                operation["value"] = rng.choice([*bodies.VALUES, "busybox:2", {"app": "x"}])
            if word in ("move", "copy"):
                operation["from"] = rng.choice(places)
            operations.append(operation)
        return Step("PATCH", self.path(), self.writing(), operations, type=JSON_PATCH)

    def apply(self) -> Step:
        obj = self.odd(self.whole(self.name()))
        query = {**self.writing(), "fieldManager": "one"}
        if self.chance(0.3):
            query["force"] = "true"
        return Step("PATCH", self.path(), query, obj, type=APPLY)

    def other_kind_of_patch(self) -> Step:
        kind = self.rng.choice(["application/json", "text/plain", "application/merge-patch+json; charset=utf-8"])
        return Step("PATCH", self.path(), body={"metadata": {"labels": {"app": "y"}}}, type=kind)

    def options(self) -> Json | None:
        if self.chance(0.4):
            return None
        rng = self.rng
        fields: Json = {
            "propagationPolicy": rng.choice(["Foreground", "Background", "Orphan", "Odd"]),
            "gracePeriodSeconds": rng.choice([0, 1, 30, -1]),
            "preconditions": rng.choice([
                {"uid": self.uid()}, {"resourceVersion": self.earlier("version")}, {"resourceVersion": "1"}, {},
            ]),
            "orphanDependents": rng.choice([True, False]),
            "dryRun": rng.choice([["All"], ["Some"], []]),
        }  # fmt: skip
        kinds = {"kind": "DeleteOptions", "apiVersion": "v1"} if self.chance(0.7) else {}
        body = {**kinds, **bodies.some(rng, fields, 2)}
        return bodies.spoiled(rng, body) if body and self.chance(0.1) else body

    def delete(self) -> Step:
        query = {}
        if self.chance(0.15):
            query["propagationPolicy"] = self.rng.choice(["Foreground", "Background", "Orphan"])
        if self.chance(0.15):
            query["gracePeriodSeconds"] = self.rng.choice(["0", "7", "x"])
        if self.chance(0.1):
            query["dryRun"] = "All"
        return Step("DELETE", self.path(), query, self.options(), accept=self.accept() if self.chance(0.2) else "")

    def delete_collection(self) -> Step:
        query = {}
        if self.chance(0.5):
            query["labelSelector"] = self.rng.choice(["app=x", "tier", "app in (x,y)"])
        elif self.chance(0.2):
            query["fieldSelector"] = "metadata.name=a"
        if self.chance(0.1):
            query["dryRun"] = "All"
        options = self.options()
        return Step("DELETE", self.subject.path, query, options if self.chance(0.5) else None)

    def watch(self) -> Step:
        query = {"watch": "true"}
        if self.chance(0.8):
            query["resourceVersion"] = f"{{{self.objects[0]}.version}}" if self.chance(0.7) else self.list_version()
        if self.chance(0.3):
            query["labelSelector"] = self.rng.choice(["app=x", "app!=x", "!tier"])
        if self.chance(0.15):
            query["fieldSelector"] = self.rng.choice(["metadata.name=a", "metadata.name!=a", "spec.mode=fast"])
        return Step("GET", self.subject.path, query, accept=self.accept())

    def nowhere(self) -> Step:
        """Paths and methods that are not served."""
        rng, path = self.rng, self.subject.path
        do = rng.choice(["GET", "POST", "PUT", "PATCH", "DELETE"])
        ends = ["/a/nothing", "/a/status", "x", "x/a", "/a/scale", "", "/a"]
        body: Json | None = {} if do in ("POST", "PUT", "PATCH") else None
        return Step(do, path + rng.choice(ends), body=body, type=MERGE if do == "PATCH" else "")


WEIGHTS = {
    "create": 20, "get": 8, "listing": 12, "more": 5, "update": 14, "status": 8, "scale": 5, "merge": 14, "edit": 8,
    "other_kind_of_patch": 1, "delete": 10, "delete_collection": 3, "watch": 3, "nowhere": 2, "apply": 1,
}  # fmt: skip


def sequence(seed: int, number: int) -> list[Step]:
    """Sequence `number` of a seed."""
    rng = Random(f"{seed}/{number}")
    return Author(rng).write(rng.randint(4, 10))
