"""ObjectMeta: the fields that clients may write, those that only the server sets, and their validation.

Rules for this file:
- The messages are those of kube-apiserver. The syntax of names and labels is in api_types/names.py.
- Unknown fields are dropped, as in kube-apiserver. Only apply.py writes managedFields.
"""

from __future__ import annotations

import os
import random

from trainyard.api_types.names import annotation_problems, key_texts, label_problems, name_problem, path_texts
from trainyard.objects import Json, Problem
from trainyard.schema.checks import json_text

CLIENT_FIELDS = ("name", "generateName", "namespace", "labels", "annotations", "ownerReferences", "finalizers")
SERVER_FIELDS = (
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
)

UNQUALIFIED = "name is neither a standard finalizer name nor is it fully qualified"
STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")
# As in kube-apiserver: no vowels and no similar-looking characters.
SUFFIX = "bcdfghjklmnpqrstvwxz2456789"


def generate_name(prefix: str) -> str:
    """A name for `generateName`: five random characters, the prefix cut so that it fits 63."""
    return prefix[:58] + "".join(random.choices(SUFFIX, k=5))


def new_uid() -> str:
    """A random UUID of version 4 as text; twice as fast as `str(uuid.uuid4())`."""
    digits = os.urandom(16).hex()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


def requested_name(meta: Json) -> str:
    """The name in a create request: generateName when the server generated the name from it."""
    name, prefix = meta.get("name") or "", meta.get("generateName") or ""
    generated_here = prefix and name.startswith(prefix[:58]) and len(name) == len(prefix[:58]) + 5
    return prefix if generated_here else name


def sanitized(meta: Json, old: Json | None) -> Json:
    """The metadata to store: the client's fields from the request, the server's fields from the old object."""
    kept = {name: value for name in CLIENT_FIELDS if (value := meta.get(name)) not in (None, "", {}, [])}
    if old is not None:
        kept.update((name, old[name]) for name in SERVER_FIELDS if name in old)
    return kept


def immutable_problems(sent: Json, old: Json) -> list[Problem]:
    """Problems for changes of server fields. Most such changes are ignored; those of uid and deletionTimestamp are
    refused."""
    problems, value = uid_problems(sent, old), sent.get("deletionTimestamp")
    if value is not None and "deletionTimestamp" not in old:
        problems.append(Problem("metadata.deletionTimestamp", f"Invalid value: {json_text(value)}: field is immutable"))
    return problems


def uid_problems(sent: Json, old: Json) -> list[Problem]:
    """A problem when the request has another uid than the stored object."""
    uid = sent.get("uid") or old["uid"]
    return (
        [] if uid == old["uid"] else [Problem("metadata.uid", f"Invalid value: {json_text(uid)}: field is immutable")]
    )


def problems(meta: Json, name_rule: str, *, any_finalizer: bool = False) -> list[Problem]:
    """Problems of names, labels, annotations, owners and finalizers. `any_finalizer`: they need no
    domain."""
    problems: list[Problem] = []
    if (prefix := meta.get("generateName")) and (problem := name_problem(prefix.rstrip("-"), name_rule)):
        problems.append(
            Problem("metadata.generateName", problem.text.replace(json_text(prefix.rstrip("-")), json_text(prefix), 1))
        )
    if not meta.get("name"):
        problems.append(Problem("metadata.name", "Required value: name or generateName is required"))
    elif name_rule == "path" and (texts := path_texts(meta["name"])):
        problems += [Problem("metadata.name", f"Invalid value: {json_text(meta['name'])}: {text}") for text in texts]
    elif problem := name_problem(meta["name"], name_rule):
        problems.append(problem)
    if labels := meta.get("labels"):
        problems += label_problems(labels, "metadata.labels")
    if annotations := meta.get("annotations"):
        problems += annotation_problems(annotations)
    if owners := meta.get("ownerReferences"):
        problems += _owner_problems(owners)
    for index, finalizer in enumerate(meta.get("finalizers") or ()):
        texts = key_texts(finalizer)
        problems += [Problem("metadata.finalizers", f"Invalid value: {json_text(finalizer)}: {text}") for text in texts]
        if not any_finalizer and "/" not in finalizer and finalizer not in STANDARD_FINALIZERS:
            path = f"metadata.finalizers[{index}]"
            problems.append(Problem(path, f"Invalid value: {json_text(finalizer)}: {UNQUALIFIED}"))
    return problems


def _owner_problems(owners: list[Json]) -> list[Problem]:
    problems = []
    controllers: list[str] = []
    for index, owner in enumerate(owners):
        path = f"metadata.ownerReferences[{index}]"
        if owner.get("kind") == "Event" and owner.get("apiVersion") in ("v1", "events.k8s.io/v1"):
            problems.append(
                Problem(path, f"Invalid value: {json_text(owner)}: an Event is disallowed from being an owner")
            )
        for name in ("apiVersion", "kind", "name", "uid"):
            if not isinstance(owner.get(name), str) or not owner[name]:
                problems.append(Problem(f"{path}.{name}", "Required value: must not be empty"))
        if owner.get("controller") is True:
            controllers.append(f"{owner.get('kind')}/{owner.get('name')}")
    if len(controllers) > 1:
        text = f'Only one reference can have Controller set to true. Found "true" in references for {controllers[0]}'
        text = f"Invalid value: {json_text(owners)}: {text} and {controllers[1]}"
        problems.append(Problem("metadata.ownerReferences", text))
    return problems
