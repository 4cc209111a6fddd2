"""What a namespace holds, as plain JSON that two operators can be compared by.

    {"job": {"status": ...}, "phases": {POD: PHASE}, "pods": {NAME: ...}, "services": ..., ..., "events": [...]}

- `job` is None once the job is gone; `job.spec` and `job.metadata` are there when they are not what the user has
  written.
- The events are sorted lines `TYPE REASON KIND/NAME: MESSAGE`; how often one was sent is left out.
- Normalised: times are `<time>`, uids `<uid>`, the namespace `<namespace>`, generated suffixes of names `<random>`,
  keys in Secrets their kind, the YAML of a runtime's snapshot an object.
- Absent: resourceVersion, creationTimestamp, generation, managedFields, the cluster's own addresses, the token volume
  of a pod, what admission and the scheduler add to a pod, other status than the job's and the pod's phase.
- A field that has the API server's default is left out: whether an operator has written the default or nothing, the
  object is the same.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from trainyard.objects import GVK, Json, name_of, uid_of
from trainyard.objects.resources import (
    CONFIG_MAP,
    JOB,
    POD,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
)

JOB_SET = GVK("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
CLAIM = GVK("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
HPA = GVK("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
VOLCANO_GROUP = GVK("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups")
PLUGINS_GROUP = GVK("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups")
SECTIONS: Mapping[str, GVK] = {
    "pods": POD,
    "services": SERVICE,
    "configMaps": CONFIG_MAP,
    "secrets": SECRET,
    "serviceAccounts": SERVICE_ACCOUNT,
    "roles": ROLE,
    "roleBindings": ROLE_BINDING,
    "jobs": JOB,
    "jobSets": JOB_SET,
    "persistentVolumeClaims": CLAIM,
    "horizontalPodAutoscalers": HPA,
    "volcanoPodGroups": VOLCANO_GROUP,
    "schedulerPluginsPodGroups": PLUGINS_GROUP,
}
"""Where the objects of a resource stand in a snapshot."""

RUNTIME_SNAPSHOT = "-runtime-snapshot"
"""The end of the name of the ConfigMap with the runtime of a TrainJob."""
GIVEN = {("configMaps", "kube-root-ca.crt"), ("serviceAccounts", "default")}  # each namespace has them
CLUSTER_COMPONENTS = frozenset((
    "default-scheduler", "kubelet", "job-controller", "endpoint-slice-controller", "endpoint-controller",
    "horizontal-pod-autoscaler", "garbage-collector-controller", "taint-eviction-controller",
))  # fmt: skip
SERVER_METADATA = (
    "uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "namespace", "deletionTimestamp",
    "deletionGracePeriodSeconds",
)  # fmt: skip
CLUSTER_ADDRESSES = ("clusterIPs", "ipFamilies", "ipFamilyPolicy")
SCHEDULING = ("nodeName", "priority", "preemptionPolicy", "enableServiceLinks")
POD_DEFAULTS: Mapping[str, Any] = {
    "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler", "securityContext": {},
    "serviceAccount": "default", "serviceAccountName": "default", "terminationGracePeriodSeconds": 30,
    "tolerations": [], "volumes": [], "initContainers": [],
}  # fmt: skip
CONTAINER_DEFAULTS: Mapping[str, Any] = {
    "imagePullPolicy": "IfNotPresent", "resources": {}, "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File", "volumeMounts": [], "ports": [],
}  # fmt: skip
VARIABLE_DEFAULTS: Mapping[str, Any] = {"value": ""}
PORT_DEFAULTS: Mapping[str, Any] = {"protocol": "TCP"}
SERVICE_DEFAULTS: Mapping[str, Any] = {
    "internalTrafficPolicy": "Cluster", "sessionAffinity": "None", "type": "ClusterIP", "ports": [],
}  # fmt: skip
TOKEN_VOLUME = re.compile(r"kube-api-access-\w{5}")
SHA1 = re.compile(r"\b[0-9a-f]{40}\b")  # of a name with the namespace, in a label of JobSet
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def snapshot(job: Json | None, submitted: Json, objects: Mapping[str, Iterable[Json]], events: Iterable[Json]) -> Json:
    """`objects` by section; `submitted` is the job as the server has answered the user's last write."""
    listed = {section: list(items) for section, items in objects.items()}
    texts = _Texts(submitted, listed)
    content: Json = {"job": None if job is None else _job(job, submitted)}
    content["phases"] = {name_of(pod): _phase(pod) for pod in listed.get("pods", [])}
    for section, items in listed.items():
        content[section] = {
            name_of(item): _object(section, item) for item in items if (section, name_of(item)) not in GIVEN
        }
    content["events"] = [_event(event) for event in events if not _is_of_the_cluster(event)]
    normal: Json = texts.normalised(content)
    normal["events"] = sorted(set(normal["events"]))
    return {section: value for section, value in normal.items() if value or section == "job"}


class _Texts:
    """Replaces what differs from run to run in every text."""

    def __init__(self, submitted: Json, objects: Mapping[str, list[Json]]) -> None:
        everything = [submitted, *(item for items in objects.values() for item in items)]
        names = {uid_of(item): "<uid>" for item in everything}
        names[str(submitted["metadata"]["namespace"])] = "<namespace>"
        for item in everything:
            if (prefix := item["metadata"].get("generateName")) and name_of(item).startswith(prefix):
                names[name_of(item)] = f"{prefix}<random>"
        self._names = names
        self._pattern = re.compile("|".join(sorted(map(re.escape, filter(None, names)), key=len, reverse=True)))

    def normalised(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self.normalised(key): self.normalised(part) for key, part in value.items()}
        if isinstance(value, list):
            return [self.normalised(part) for part in value]
        if isinstance(value, str):
            return SHA1.sub("<sha1>", TIME.sub("<time>", self._pattern.sub(lambda match: self._names[match[0]], value)))
        return value


def _job(job: Json, submitted: Json) -> Json:
    content: Json = {"status": job.get("status") or {}}
    if job.get("spec") != submitted.get("spec"):
        content["spec"] = job.get("spec")
    metadata = {key: job["metadata"].get(key) for key in ("labels", "annotations", "finalizers", "ownerReferences")}
    if any(metadata[key] != submitted["metadata"].get(key) for key in metadata):
        content["metadata"] = {key: value for key, value in metadata.items() if value}
    return content


def _phase(pod: Json) -> str:
    phase = str((pod.get("status") or {}).get("phase") or "Pending")
    return f"{phase}, deleting" if "deletionTimestamp" in pod["metadata"] else phase


def _object(section: str, item: Json) -> Json:
    content = {key: value for key, value in item.items() if key not in ("status", "apiVersion", "kind")}
    metadata = {key: value for key, value in item["metadata"].items() if key not in SERVER_METADATA}
    if owners := metadata.get("ownerReferences"):
        metadata["ownerReferences"] = [{key: part for key, part in owner.items() if key != "uid"} for owner in owners]
    content["metadata"] = metadata
    if "spec" in content:
        content["spec"] = _spec(section, content["spec"])
    if section == "configMaps" and name_of(item).endswith(RUNTIME_SNAPSHOT):
        content["data"] = {key: _runtime(text) for key, text in (item.get("data") or {}).items()}
    if section == "secrets":
        content["data"] = {key: _secret(value) for key, value in (item.get("data") or {}).items()}
    return content


def _runtime(text: str) -> Json:
    """The object in a snapshot of a runtime, without what the server has added to its metadata."""
    runtime = yaml.load(text, yaml.CSafeLoader)
    metadata = {key: value for key, value in runtime["metadata"].items() if key not in SERVER_METADATA}
    return {**runtime, "metadata": metadata}


def _spec(section: str, spec: Json) -> Json:
    if section == "services":
        spec = {key: value for key, value in spec.items() if key not in CLUSTER_ADDRESSES}
        if spec.get("clusterIP") != "None":
            spec.pop("clusterIP", None)
        ports = [_without(port, PORT_DEFAULTS) for port in spec.get("ports", [])]
        return _without({**spec, "ports": ports}, SERVICE_DEFAULTS)
    if section == "pods":
        return pod_spec(spec)
    if section == "jobs":
        template = spec["template"]
        template = {**template, "spec": pod_spec(template["spec"])}
        return {**{key: value for key, value in spec.items() if key != "selector"}, "template": template}
    return spec


def pod_spec(spec: Json) -> Json:
    """The spec of a pod without what the cluster adds, and without defaults."""
    content = {key: value for key, value in spec.items() if key not in SCHEDULING}
    content["tolerations"] = [
        toleration for toleration in spec.get("tolerations", []) if not _given_toleration(toleration)
    ]
    content["volumes"] = [volume for volume in spec.get("volumes", []) if not TOKEN_VOLUME.fullmatch(volume["name"])]
    for key in ("containers", "initContainers"):
        content[key] = [_container(container_spec) for container_spec in spec.get(key, [])]
    return _without(content, POD_DEFAULTS)


def _without(part: Json, defaults: Mapping[str, Any]) -> Json:
    """The fields that do not have the default."""
    return {key: value for key, value in part.items() if key not in defaults or value != defaults[key]}


def _given_toleration(toleration: Json) -> bool:
    keys = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    return toleration.get("key") in keys and toleration.get("tolerationSeconds") == 300


def _container(container: Json) -> Json:
    mounts = [mount for mount in container.get("volumeMounts", []) if not TOKEN_VOLUME.fullmatch(mount["name"])]
    ports = [_without(port, PORT_DEFAULTS) for port in container.get("ports", [])]
    content = {**container, "volumeMounts": mounts, "ports": ports}
    if "env" in container:
        content["env"] = [_without(variable, VARIABLE_DEFAULTS) for variable in container["env"]]
    return _without(content, CONTAINER_DEFAULTS)


def _secret(value: str) -> str:
    """The kind of what a Secret holds: the header of a key, and nothing of the key."""
    data = base64.b64decode(value)
    first = data.split(b"\n")[0]
    header = first if first.startswith(b"-----") else first.split(b" ")[0]
    return header.decode(errors="replace")


def _is_of_the_cluster(event: Json) -> bool:
    """Whether the event is not the operator's, or is about a pod that is not placed: the recorded clusters had no
    scheduler that could say so."""
    return _component(event) in CLUSTER_COMPONENTS or event.get("reason") == "Unschedulable"


def _component(event: Json) -> str:
    return str((event.get("source") or {}).get("component") or event.get("reportingComponent") or "")


def _event(event: Json) -> str:
    about = event.get("involvedObject") or {}
    message = str(event.get("message", ""))
    message = message.removeprefix("(combined from similar events): ")
    return f"{event.get('type')} {event.get('reason')} {about.get('kind')}/{about.get('name')}: {message}"
