"""Why a container or a pod waits, from the reason and the message of its waiting state, and the fix."""

from __future__ import annotations

import re
from typing import NamedTuple

from trainyard.core.diagnosis import Cause
from trainyard.objects import Json, namespace_of
from trainyard.objects.patterns import lazy_pattern
from trainyard.views.diagnosis.inputs import Facts, container_spec

_PULL_FIX = "see that the image's name and tag are right and that this cluster may pull it (imagePullSecrets)"
_NODE_RETRIES_FIX = "mend what the message names; the node tries it again by itself"
_RUN_AGAIN_FIX = "mend what the message names, and run it again"
WAITING_CAUSES = {
    "ErrImageNeverPull": Cause(
        "its image is not on its node, and imagePullPolicy Never forbids to pull it",
        "load the image into that node, or let imagePullPolicy be IfNotPresent",
    ),
    "ErrImagePull": Cause("its image cannot be pulled", _PULL_FIX),
    "ImagePullBackOff": Cause("its image cannot be pulled", _PULL_FIX),
    "InvalidImageName": Cause("the name of its image is invalid", "mend the image's name in the template"),
    "ImageInspectError": Cause("its image cannot be inspected", _PULL_FIX),
    "CreateContainerError": Cause("its container cannot be created", "mend the template as the message says"),
    "CreateContainerConfigError": Cause(
        "its container cannot be set up as its template says", "mend in the template what the message names"
    ),
    "RunContainerError": Cause("its container cannot be started", "check command, args and workingDir of the template"),
}
_NUMERIC_USER_FIX = "set runAsUser in the securityContext of the template, to a number other than 0 with which it works"
CONFIGURATION_CAUSES = (
    (
        "has runAsNonRoot and image will run as root",
        Cause("its image would run as root, which runAsNonRoot forbids", _NUMERIC_USER_FIX),
    ),
    (
        "has runAsNonRoot and image has non-numeric user",
        Cause("the user of its image is a name, and runAsNonRoot needs a number", _NUMERIC_USER_FIX),
    ),
    (
        "container's runAsUser breaks non-root policy",
        Cause("its runAsUser is 0, which runAsNonRoot forbids", _NUMERIC_USER_FIX),
    ),
)
"""Texts in a message of CreateContainerConfigError, and what they mean."""
IMAGE_REASONS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "ImageInspectError", "ErrImageNeverPull", "InvalidImageName"}
)
TAINT_FIX = (
    "add a toleration of the taint to the template, or a node without it; a taint of node.kubernetes.io ends when its "
    "node is well again: `kubectl describe node`"
)
UNSCHEDULABLE_FIXES = (
    (
        "no node is ready",
        "see that a node is ready: `kubectl get nodes`, and on this machine the log of `trainyard status`",
    ),
    ("Insufficient", "ask for less in resources.requests, free some of it, or add a node that has it"),
    ("taint", TAINT_FIX),
    ("affinity", "mend nodeSelector or affinity of the template, or label a node"),
    ("selector", "mend nodeSelector or affinity of the template, or label a node"),
    ("PersistentVolumeClaim", "make the claim, or a volume for it: `kubectl get pvc`"),
    ("persistentvolumeclaim", "make the claim, or a volume for it: `kubectl get pvc`"),
    (
        "were unschedulable",
        "see which nodes are cordoned, as by a drain: `kubectl get nodes`; after that `kubectl uncordon NODE`",
    ),
)


class MissingObject(NamedTuple):
    """An object that a pod refers to and that does not exist."""

    kind: str
    name: str
    fix: str
    is_key: bool = False  # the object exists, a key of its data does not; `name` is the key


_MISSING_PATTERN = lazy_pattern(
    r"\b(configmap|secret|serviceaccount|persistentvolumeclaim)s? \"([^\"/]+)\" not found"
    r"|references non-existent (config|secret) key: (\S+)"
    r"|couldn't find key (\S+) in (ConfigMap|Secret) \S*?/?([^\s/]+)$",
    re.IGNORECASE,
)
_KIND_NAMES = {
    "configmap": "ConfigMap",
    "secret": "Secret",
    "serviceaccount": "ServiceAccount",
    "persistentvolumeclaim": "PersistentVolumeClaim",
}
# A kubelet does not say what is at the path, a Trainyard node does.
_HOST_PATH_PATTERN = lazy_pattern(
    r"hostPath type check failed: (\S+) is not (a [a-z]+(?: device)?|there)(?:: it (does not exist|is .+))?"
)
_HOST_PATH_TYPES = {"a directory": "Directory", "a file": "File", "a socket": "Socket"}


def missing_object(message: str, namespace: str) -> MissingObject | None:
    """The object that does not exist according to a message, and how to create it. None when no pattern matches."""
    match = _MISSING_PATTERN.search(message)
    if match is None:
        return None
    namespace_option = f" -n {namespace}" if namespace != "default" else ""
    if match[1]:
        kind, name = _KIND_NAMES[match[1].lower()], match[2]
        fixes = {
            "ConfigMap": f"`kubectl create configmap {name} --from-file=FILE{namespace_option}`",
            "Secret": f"`kubectl create secret generic {name} --from-file=FILE{namespace_option}`",
            "ServiceAccount": f"`kubectl create serviceaccount {name}{namespace_option}`",
            "PersistentVolumeClaim": f"name a folder of this machine for it: --mount {name}=DIR (run, up)",
        }
        return MissingObject(kind, name, f"add the {kind} {name} to the manifest, or {fixes[kind]}; else mend its name")
    key, kind = (match[4], match[3]) if match[3] else (match[5], match[6])
    kind = {"config": "ConfigMap", "configmap": "ConfigMap"}.get(kind.lower(), "Secret")
    return MissingObject(kind, key, f"add the key {key} to the {kind}, or mend the key that is named", True)


def waiting_cause(facts: Facts, pod: Json, container: str, reason: str, message: str) -> Cause | None:
    """Why a container waits; None when its reason needs no action of the user."""
    if missing := missing_object(message, namespace_of(pod)):
        if missing.is_key:
            return Cause(f"its {missing.kind} has no key {missing.name}", missing.fix)
        return Cause(f"there is no {missing.kind} {missing.name}", missing.fix)
    if reason in IMAGE_REASONS and facts.runs_as_processes(pod):
        return _local_image_cause(pod, container, reason, _RUN_AGAIN_FIX if facts.cluster_ends else _NODE_RETRIES_FIX)
    refusals = (cause for text, cause in CONFIGURATION_CAUSES if text in message)
    return next(refusals, None) or WAITING_CAUSES.get(reason)


def _local_image_cause(pod: Json, container: str, reason: str, retry_fix: str) -> Cause:
    """The cause on a Trainyard node, where an image names an entry of a catalogue and no registry is used."""
    spec = container_spec(pod, container)
    image = str(spec.get("image") or "")
    if reason != "ErrImageNeverPull":
        return Cause(f"the environment of its image {image} cannot be provided on this machine", retry_fix)
    fix = "write the program as command of the container, or an entry for the image in a catalogue (--images FILE)"
    if spec.get("args"):
        return Cause(f"it has args but no command, and no catalogue says which program its image {image} starts", fix)
    return Cause(f"it has no command, and no catalogue says which program its image {image} starts", fix)


def volume_cause(message: str) -> Cause | None:
    """Why a volume cannot be mounted; None unless the type check of a hostPath failed."""
    match = _HOST_PATH_PATTERN.search(message)
    if match is None:
        return None
    path, file_type, problem = match[1], match[2], match[3] or ""
    if problem.startswith("is "):
        actual_type = problem.removeprefix("is ").strip()
        type_fix = f", or write type: {_HOST_PATH_TYPES[actual_type]}" if actual_type in _HOST_PATH_TYPES else ""
        return Cause(
            f"its hostPath {path} is {actual_type}, not {file_type}",
            f"name {file_type} in path of the hostPath{type_fix}",
        )
    command = f"make it (`mkdir -p {path}`)" if file_type == "a directory" else f"make {path}"
    if problem:
        explanation = f"its hostPath {path} does not exist"
        return Cause(explanation, f"{command}, or mend path and type of the hostPath")
    return Cause(
        f"its hostPath {path} is not {file_type}",
        f"{command} if nothing is there (`ls -ld {path}`), or mend path and type of the hostPath",
    )


def unschedulable_fix(message: str, namespace: str, otherwise: str = "") -> str:
    """The fix for a message of the scheduler. `otherwise`: if it names nothing that is known."""
    if missing := missing_object(message, namespace):
        return missing.fix
    return next(
        (fix for keyword, fix in UNSCHEDULABLE_FIXES if keyword in message), otherwise or "mend what the message names"
    )
