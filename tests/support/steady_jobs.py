"""Running PyTorchJobs in the log of an embedded API server, as many as a measurement needs.

The operator itself runs one job, through the API, until it has nothing left to write. The others are that one under
other names and uids: 10,000 jobs of 10 pods are there in half a minute, with bodies as a server of Kubernetes returns
them (defaults, conditions, managedFields).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from tests.support.waiting import until_async
from trainyard import kinds
from trainyard.app.local import NOT_SERVED
from trainyard.client import ApiClient
from trainyard.client.request import create
from trainyard.core import Config
from trainyard.core.names import digest
from trainyard.objects import Json, NamespacedName, decode, encode, format_time, is_condition_true, uid_of
from trainyard.objects.resources import CRD, POD
from trainyard.operator import Operator
from trainyard.server import Server
from trainyard.server.model.store import Record

PYTORCHJOB = kinds.PYTORCHJOB.gvk
NAMESPACE = "default"
MODEL = "resnet-00000"  # the name of the job that the others are made from; all names are as long
_CHILDREN = ("pods", "services")
_MANAGED = ("annotations", "labels", "ownerReferences")  # of metadata
_REVISION = re.compile(rb'"resourceVersion":"\d+"')


def pytorch_job(name: str, pods: int) -> Json:
    """A job as a user writes it, with what `kubectl apply` adds: about 4 kB."""
    container = {
        "name": "pytorch",
        "image": "registry.example.com/vision/resnet:2.4.1",
        "command": ["python", "-m", "train.main"],
        "args": ["--dataset=/data/imagenet", "--epochs=90", "--batch-size=256", "--checkpoints=/checkpoints"],
        "env": [{"name": f"TRAIN_OPTION_{number}", "value": f"value-of-{number}"} for number in range(3)],
        "resources": {"limits": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "1"}, "requests": {"cpu": "8"}},
        "volumeMounts": [
            {"name": "data", "mountPath": "/data", "readOnly": True},
            {"name": "checkpoints", "mountPath": "/checkpoints"},
            {"name": "shared-memory", "mountPath": "/dev/shm"},
        ],
    }
    pod = {
        "containers": [container],
        "nodeSelector": {"accelerator": "a100"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "imagenet"}},
            {"name": "checkpoints", "persistentVolumeClaim": {"claimName": "checkpoints"}},
            {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
        ],
    }
    replicas = {"Master": 1, "Worker": pods - 1} if pods > 1 else {"Master": 1}
    template = {"metadata": {"labels": {"team": "vision"}}, "spec": pod}
    job: Json = {
        "apiVersion": PYTORCHJOB.api_version,
        "kind": PYTORCHJOB.kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "pytorchReplicaSpecs": {
                role: {"replicas": count, "restartPolicy": "OnFailure", "template": template}
                for role, count in replicas.items()
            },
            "runPolicy": {"cleanPodPolicy": "None"},
        },
    }
    applied = encode(job).decode() + "\n"
    job["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": applied}
    return job


def running_status(pod: Json, now: str) -> Json:
    """The status that a kubelet writes when the containers of the pod have started."""
    conditions = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    statuses = [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": f"{container['image']}@sha256:{'0123456789abcdef' * 4}",
            "containerID": f"containerd://{'fedcba9876543210' * 4}",
            "ready": init is False,
            "started": init is False,
            "restartCount": 0,
            "state": {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}}
            if init
            else {"running": {"startedAt": now}},
        }
        for init, listed in ((True, "initContainers"), (False, "containers"))
        for container in pod["spec"].get(listed, ())
    ]
    init_count = len(pod["spec"].get("initContainers", ()))
    return {
        "phase": "Running",
        "conditions": [{"type": name, "status": "True", "lastTransitionTime": now} for name in conditions],
        "hostIP": "10.0.4.17",
        "hostIPs": [{"ip": "10.0.4.17"}],
        "podIP": "10.244.17.3",
        "podIPs": [{"ip": "10.244.17.3"}],
        "qosClass": "Burstable",
        "startTime": now,
        **({"initContainerStatuses": statuses[:init_count]} if init_count else {}),
        "containerStatuses": statuses[init_count:],
    }


def managed_fields(obj: Json, now: str) -> list[Json]:
    """`metadata.managedFields` as a server of Kubernetes keeps them: every field of the object, by its manager."""
    metadata = {name: value for name, value in obj["metadata"].items() if name in _MANAGED}
    managers = [("kubectl-create", "", {"metadata": metadata, "spec": obj["spec"]})]
    if "status" in obj:
        managers.append(("kubelet", "status", {"status": obj["status"]}))
    return [
        {
            "manager": manager,
            "operation": "Update",
            "apiVersion": obj["apiVersion"],
            "time": now,
            "fieldsType": "FieldsV1",
            "fieldsV1": _field_set(fields),
            **({"subresource": subresource} if subresource else {}),
        }
        for manager, subresource, fields in managers
    ]


def _field_set(value: Any) -> Json:
    if isinstance(value, dict):
        return {f"f:{name}": _field_set(item) for name, item in value.items()}
    if isinstance(value, list):
        named = [item for item in value if isinstance(item, dict) and "name" in item]
        return {f'k:{{"name":"{item["name"]}"}}': {".": {}, **_field_set(item)} for item in named}
    return {}


async def run_pods(api: ApiClient, namespace: str = NAMESPACE) -> None:
    """Set the pending pods to running, as a kubelet does."""
    now = format_time(1_790_000_000)
    for pod in (await api.list(POD, namespace))["items"]:
        if pod.get("status", {}).get("phase", "Pending") == "Pending":
            status = running_status(pod, now)
            await api.patch(POD, namespace, pod["metadata"]["name"], {"status": status}, "status")


async def install(api: ApiClient) -> None:
    """Create the CRDs of all kinds."""
    for kind in kinds.ALL:
        await api.send(create(CRD, "", kinds.crd(kind)))


async def fill(server: Server, jobs: int, pods: int) -> None:
    """Add running jobs with so many pods each to a server that has started."""
    async with ApiClient("http://in-process", transport=server.in_process()) as api:
        await install(api)
        if not jobs:
            return
        await _run_one(server, api, pods)
        originals = await _read(server, api)
    for number in range(1, jobs):
        for store, key, record in _copies(originals, number):
            revision = server.log.revision + 1
            body = _REVISION.sub(b'"resourceVersion":"%d"' % revision, record.body, count=1)
            server.log.append(store, key, record._replace(revision=revision, body=body), 0)


async def _run_one(server: Server, api: ApiClient, pods: int) -> None:
    """Create the job and run it until its status has every pod and the operator has nothing left to write."""
    async with ApiClient("http://in-process", transport=server.in_process()) as own:
        operator = Operator(own, kinds.ALL, Config(missing_resources=NOT_SERVED))
        await operator.start()
        try:
            await api.create(PYTORCHJOB, NAMESPACE, pytorch_job(MODEL, pods))

            async def run_and_look() -> bool:
                await run_pods(api)
                return await _runs(api, pods)

            await until_async(run_and_look, "every pod runs", seconds=120)
        finally:
            await operator.stop()


async def _runs(api: ApiClient, pods: int) -> bool:
    job = await api.get(PYTORCHJOB, NAMESPACE, MODEL)
    status = job.get("status") or {}
    active = sum(role.get("active", 0) for role in (status.get("replicaStatuses") or {}).values())
    return active == pods and is_condition_true(status.get("conditions"), "Running")


async def _read(server: Server, api: ApiClient) -> list[tuple[str, NamespacedName, Record]]:
    """The job and its children as stored, with managedFields."""
    originals = []
    stores = (f"{PYTORCHJOB.plural}.{PYTORCHJOB.group}", *_CHILDREN)
    for store in stores:
        for key, record in server.log.list(store):
            if not key.name.startswith(MODEL):
                continue
            obj = decode(record.body)
            obj["metadata"]["managedFields"] = managed_fields(obj, format_time(1_790_000_000))
            originals.append((store, key, record._replace(body=encode(obj))))
    return originals


def _copies(
    originals: list[tuple[str, NamespacedName, Record]], number: int
) -> Iterator[tuple[str, NamespacedName, Record]]:
    """The objects under another name of the job and other uids."""
    name = f"resnet-{number:05}"
    uids = {uid_of(decode(record.body)): "" for _, _, record in originals}
    uids = {uid: str(uuid5(NAMESPACE_OID, f"{uid}/{number}")) for uid in uids}
    pods = [uid_of(decode(record.body)) for store, _, record in originals if store == "pods"]
    # status.gang: the job has seen these pods run, so that others would be a restart
    uids[digest(sorted(pods))] = digest(sorted(uids[uid] for uid in pods))

    def renamed(text: str) -> str:
        text = text.replace(MODEL, name)
        for uid, other in uids.items():
            text = text.replace(uid, other)
        return text

    for store, key, record in originals:
        labels = {label: renamed(value) for label, value in record.labels.items()}
        fields = {field: renamed(value) for field, value in record.fields.items()}
        body = renamed(record.body.decode()).encode()
        yield store, NamespacedName(key.namespace, renamed(key.name)), Record(record.revision, body, labels, fields)
