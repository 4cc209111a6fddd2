"""The definitions of TrainJob, TrainingRuntime and ClusterTrainingRuntime, and their rules.

The rules have Trainer's words. Those of its next version are there as well: bounds of numProcPerNode.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from trainyard.core import Rule
from trainyard.kinds.definitions.crds import with_rule
from trainyard.kinds.trainjob.runtime_spec import RuntimeSpec
from trainyard.kinds.trainjob.spec import CONTROLLER, GROUP, MULTIKUEUE, TrainJobSpec, TrainJobStatus
from trainyard.objects import GVK, Json
from trainyard.schema import from_struct

VERSION = "v1alpha1"
TRAIN_JOB = GVK(GROUP, VERSION, "TrainJob", "trainjobs")
TRAINING_RUNTIME = GVK(GROUP, VERSION, "TrainingRuntime", "trainingruntimes")
CLUSTER_TRAINING_RUNTIME = GVK(GROUP, VERSION, "ClusterTrainingRuntime", "clustertrainingruntimes")
URI = "^[A-Za-z][A-Za-z0-9+.-]*://.+$"
NAME = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
_PATCHED_POD = (
    "spec.runtimePatches[manager].trainingRuntimeSpec.template.spec.replicatedJobs[name].template.spec.template.spec"
)


def _fixed(path: str, text: str = "field is immutable") -> Rule:
    """The value is never changed. It may be added later."""
    return Rule(path, "self == oldSelf", lambda new, old: bool(new == old), text, transition=True)


def _rule(path: str, cel: str, check: Callable[[Any], bool], text: str) -> Rule:
    return Rule(path, cel, lambda value, old: check(value), text)


TRAIN_JOB_RULES = (
    _rule(
        "",
        f"self.metadata.name.matches('{NAME}')",
        lambda obj: re.fullmatch(NAME, obj["metadata"]["name"]) is not None,
        "metadata.name must match RFC 1035 DNS label format",
    ),
    _rule(
        "",
        "size(self.metadata.name) <= 63",
        lambda obj: len(obj["metadata"]["name"]) <= 63,
        "metadata.name must be no more than 63 characters",
    ),
    *(
        _rule(
            f"spec.initializer.{source}.storageUri",
            f"self == '' || self.matches('{URI}')",
            lambda uri: uri == "" or re.match(URI, uri) is not None,
            "storageUri may be empty, or it must be a valid URI (scheme://...)",
        )
        for source in ("dataset", "model")
    ),
    _rule(
        "spec.managedBy",
        f"self in ['{CONTROLLER}', '{MULTIKUEUE}']",
        lambda manager: manager in (CONTROLLER, MULTIKUEUE),
        f"ManagedBy must be {CONTROLLER} or {MULTIKUEUE} if set",
    ),
    _rule(
        "spec.trainer.numProcPerNode",
        "self >= 1",
        lambda count: count >= 1,
        "numProcPerNode must be greater than or equal to 1",
    ),
    *(
        _fixed(f"spec.{name}")
        for name in ("activeDeadlineSeconds", "initializer", "managedBy", "runtimeRef", "trainer")
    ),
    _fixed("spec.runtimePatches[manager].manager"),
    *(
        _fixed(f"{_PATCHED_POD}.{name}")
        for name in (
            "containers", "imagePullSecrets", "initContainers", "securityContext", "serviceAccountName",
            "terminationGracePeriodSeconds", "volumes",
        )
    ),
    _rule(
        "status.trainerStatus",
        "has(self.lastUpdatedTime)",
        lambda status: "lastUpdatedTime" in status,
        "lastUpdatedTime is required when trainerStatus is present",
    ),
)  # fmt: skip

_JOB_SET = "spec.template.spec"
_POLICIES = ("torch", "mpi", "jax", "xgboost", "flux")
RUNTIME_RULES = (
    _rule(
        "spec.mlPolicy",
        "[has(self.torch), has(self.mpi), has(self.jax), has(self.xgboost),has(self.flux)].filter(x, x).size() <= 1",
        lambda policy: sum(name in policy for name in _POLICIES) <= 1,
        "Only one of the policy can be configured",
    ),
    _rule(
        "spec.mlPolicy.flux.numProcPerNode",
        "self >= 1",
        lambda count: count >= 1,
        "NumProcPerNode in fluxPolicy must be >= 1",
    ),
    _rule(
        "spec.mlPolicy.torch.envInjection.targets[].containerNames",
        "!self.exists(c, c == 'node')",
        lambda names: "node" not in names,
        "containerNames must not include the main node container because PET_* envs are always injected into it",
    ),
    _rule(
        _JOB_SET,
        "!(has(self.startupPolicy) && self.startupPolicy.startupPolicyOrder == 'InOrder' && "
        "self.replicatedJobs.exists(x, has(x.dependsOn)))",
        lambda spec: (
            not (
                (spec.get("startupPolicy") or {}).get("startupPolicyOrder") == "InOrder"
                and any("dependsOn" in replicated_job for replicated_job in spec["replicatedJobs"])
            )
        ),
        "StartupPolicy and DependsOn APIs are mutually exclusive",
    ),
    _rule(
        f"{_JOB_SET}.volumeClaimPolicies[]",
        "self.templates.all(t, !has(t.metadata.namespace) || size(t.metadata.namespace) == 0)",
        lambda policy: not any(template["metadata"].get("namespace") for template in policy["templates"]),
        "namespace cannot be set for VolumeClaimPolicies templates",
    ),
    *(
        _fixed(f"{_JOB_SET}.{name}", "Value is immutable")
        for name in ("failurePolicy", "network", "startupPolicy", "successPolicy", "volumeClaimPolicies")
    ),
    _fixed(f"{_JOB_SET}.replicatedJobs[name].dependsOn", "Value is immutable"),
)


def train_job_schema() -> Json:
    """The structural schema of a TrainJob, with its rules."""
    status = {**from_struct(TrainJobStatus), "minProperties": 1}
    return _with_rules(_object({"spec": from_struct(TrainJobSpec), "status": status}), TRAIN_JOB_RULES)


def runtime_schema() -> Json:
    """That of both kinds of runtimes."""
    return _with_rules(_object({"spec": {**from_struct(RuntimeSpec), "minProperties": 1}}), RUNTIME_RULES)


def _object(parts: Json) -> Json:
    identity = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
    return {"type": "object", "properties": {**identity, **parts}}


def _with_rules(schema: Json, rules: tuple[Rule, ...]) -> Json:
    for rule in rules:
        schema = with_rule(schema, rule.path.split(".") if rule.path else [], rule)
    return schema


COLUMNS: tuple[Json, ...] = (
    {"name": "State", "type": "string", "jsonPath": ".status.trainyard.state"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
)


def train_job_definition() -> Json:
    """The CustomResourceDefinition of TrainJobs."""
    more = {"subresources": {"status": {}}, "additionalPrinterColumns": list(COLUMNS)}
    return _definition(TRAIN_JOB, "Namespaced", train_job_schema(), more)


def runtime_definition(gvk: GVK) -> Json:
    """That of a kind of runtimes."""
    return _definition(gvk, "Namespaced" if gvk == TRAINING_RUNTIME else "Cluster", runtime_schema(), {})


def definitions() -> list[Json]:
    """All of them."""
    return [train_job_definition(), *map(runtime_definition, (TRAINING_RUNTIME, CLUSTER_TRAINING_RUNTIME))]


def _definition(gvk: GVK, scope: str, schema: Json, more: Json) -> Json:
    names = {"kind": gvk.kind, "listKind": f"{gvk.kind}List", "plural": gvk.plural, "singular": gvk.kind.lower()}
    version = {"name": VERSION, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **more}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{gvk.plural}.{gvk.group}"},
        "spec": {"group": gvk.group, "names": names, "scope": scope, "versions": [version]},
    }
