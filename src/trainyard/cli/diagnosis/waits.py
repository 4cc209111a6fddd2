"""Why a container or a pod waits, by the reason and the message of its state; and what helps."""

from __future__ import annotations

import re
from typing import NamedTuple

from trainyard.cli.diagnosis.exits import Cause
from trainyard.cli.diagnosis.facts import Facts, container_spec
from trainyard.objects import Json, namespace_of

_PULL = "see that the image's name and tag are right and that this cluster may pull it (imagePullSecrets)"
_BUILD = "mend what the message names; the node tries it again by itself"
WAITS = {
    "ErrImageNeverPull": Cause(
        "its image is not on its node, and imagePullPolicy Never forbids to pull it",
        "load the image into that node, or let imagePullPolicy be IfNotPresent",
    ),
    "ErrImagePull": Cause("its image cannot be had", _PULL),
    "ImagePullBackOff": Cause("its image cannot be had", _PULL),
    "InvalidImageName": Cause("the name of its image is not legal", "mend the image's name in the template"),
    "ImageInspectError": Cause("its image cannot be looked into", _PULL),
    "CreateContainerError": Cause("its container cannot be made", "mend the template as the message says"),
    "CreateContainerConfigError": Cause(
        "something that its container refers to is not there", "make it, or mend the reference"
    ),
    "RunContainerError": Cause("its container cannot be started", "check command, args and workingDir of the template"),
}
IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "ImageInspectError", "ErrImageNeverPull", "InvalidImageName"})
UNSCHEDULABLE = (
    (
        "no node is ready",
        "see that a node is ready: `kubectl get nodes`, and on this machine the log of `trainyard status`",
    ),
    ("Insufficient", "ask for less in resources.requests, free some of it, or add a node that has it"),
    ("taint", "add a toleration to the template, or a node without the taint"),
    ("affinity", "mend nodeSelector or affinity of the template, or label a node"),
    ("selector", "mend nodeSelector or affinity of the template, or label a node"),
    ("PersistentVolumeClaim", "make the claim, or a volume for it: `kubectl get pvc`"),
    ("persistentvolumeclaim", "make the claim, or a volume for it: `kubectl get pvc`"),
)


class Missing(NamedTuple):
    """An object that is named and not there."""

    kind: str
    name: str
    fix: str
    is_key: bool = False  # the object is there, a key of it is not


_MISSING = re.compile(
    r"\b(configmap|secret|serviceaccount|persistentvolumeclaim)s? \"([^\"/]+)\" not found"
    r"|references non-existent (config|secret) key: (\S+)"
    r"|couldn't find key (\S+) in (ConfigMap|Secret) \S*?/?([^\s/]+)$",
    re.IGNORECASE,
)
_KINDS = {
    "configmap": "ConfigMap",
    "secret": "Secret",
    "serviceaccount": "ServiceAccount",
    "persistentvolumeclaim": "PersistentVolumeClaim",
}
_HOST_PATH = re.compile(r"hostPath type check failed: (\S+) is not (a [a-z ]+|an? \S+)")


def missing_object(message: str, namespace: str) -> Missing | None:
    """What a message says is not there, and how it is made."""
    match = _MISSING.search(message)
    if match is None:
        return None
    within = f" -n {namespace}" if namespace != "default" else ""
    if match[1]:
        kind, name = _KINDS[match[1].lower()], match[2]
        fixes = {
            "ConfigMap": f"`kubectl create configmap {name} --from-file=FILE{within}`",
            "Secret": f"`kubectl create secret generic {name} --from-file=FILE{within}`",
            "ServiceAccount": f"`kubectl create serviceaccount {name}{within}`",
            "PersistentVolumeClaim": f"name a folder of this machine for it: --mount {name}=DIR (run, up)",
        }
        return Missing(kind, name, f"add the {kind} {name} to the manifest, or {fixes[kind]}; else mend its name")
    key, kind = (match[4], match[3]) if match[3] else (match[5], match[6])
    kind = {"config": "ConfigMap", "configmap": "ConfigMap"}.get(kind.lower(), "Secret")
    return Missing(kind, key, f"add the key {key} to the {kind}, or mend the key that is named", True)


def waiting_cause(facts: Facts, pod: Json, container: str, reason: str, message: str) -> Cause | None:
    """Why a container waits; None where its reason is not one of those that need somebody."""
    if missing := missing_object(message, namespace_of(pod)):
        if missing.is_key:
            return Cause(f"its {missing.kind} has no key {missing.name}", missing.fix)
        return Cause(f"there is no {missing.kind} {missing.name}", missing.fix)
    if reason in IMAGE and facts.runs_as_processes(pod):
        return _local_image(pod, container, reason)
    return WAITS.get(reason)


def _local_image(pod: Json, container: str, reason: str) -> Cause:
    """On a Trainyard node an image is an entry of a catalogue, and no registry is asked."""
    spec = container_spec(pod, container)
    image = str(spec.get("image") or "")
    if reason != "ErrImageNeverPull":
        return Cause(f"what its image {image} stands for cannot be had on this machine", _BUILD)
    fix = "write the program as command of the container, or an entry for the image in a catalogue (--images FILE)"
    if spec.get("args"):
        return Cause(f"it has args but no command, and no catalogue says which program its image {image} starts", fix)
    return Cause(f"it has no command, and no catalogue says which program its image {image} starts", fix)


def volume_cause(message: str) -> Cause | None:
    """Why a volume cannot be set up."""
    if match := _HOST_PATH.search(message):
        path, what = match[1], match[2]
        make = (
            f"make it (`mkdir -p {path}`; nothing else may have that name)" if what == "a directory" else f"make {path}"
        )
        return Cause(f"its hostPath {path} is not {what}", f"{make}, or mend path and type of the hostPath")
    return None


def unschedulable_fix(message: str, namespace: str) -> str:
    if missing := missing_object(message, namespace):
        return missing.fix
    return next((fix for word, fix in UNSCHEDULABLE if word in message), "mend what the message names")
