"""What Trainer's webhooks refuse and CEL can say, as ValidatingAdmissionPolicies of a cluster, which runs no webhook of
ours. They are in Trainer's words, after a start of the API server's own.

One policy reads the job alone. The others have the runtimes of a kind as their parameters: the API server asks them
once for each runtime of the cluster, or of the job's namespace, and `matchConditions` leave the job's own. What no
policy can say, as that a runtime does not exist, is left to the operator (roles.read_with_runtime).
"""

from __future__ import annotations

from trainyard.kinds.trainjob.admission import MPI_RESERVED, TORCH_RESERVED, XGBOOST_RESERVED
from trainyard.kinds.trainjob.definitions import CLUSTER_TRAINING_RUNTIME, TRAIN_JOB, TRAINING_RUNTIME
from trainyard.kinds.trainjob.pod_sets import DATASET, MODEL, NODE
from trainyard.objects import GVK, Json

API_VERSION = "admissionregistration.k8s.io/v1"
DOMAIN = "trainyard.dev"
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_MANAGER = rf"^{_LABEL}(\\.{_LABEL})*/[A-Za-z0-9/._~%!$&()*+,;=:\\-]+$"
_PATCHED_JOBS = "p.?trainingRuntimeSpec.?template.?spec.?replicatedJobs.orValue([])"
_CONTAINERS = "j.?template.?spec.?template.?spec.?containers.orValue([])"
_ACTIVE = "oldObject.?status.?jobsStatus.orValue([]).filter(j, j.active > 0)"


def admission_policies() -> tuple[Json, ...]:
    """The policies, each followed by its binding."""
    name = f"{TRAIN_JOB.plural}.{DOMAIN}"
    of_jobs = (_policy(name, ["CREATE", "UPDATE"], _variables(), _rules_of_jobs()), _binding(name))
    return (*of_jobs, *_of_runtimes(CLUSTER_TRAINING_RUNTIME), *_of_runtimes(TRAINING_RUNTIME))


def _of_runtimes(gvk: GVK) -> tuple[Json, Json]:
    """The rules for jobs of a kind of runtimes. An update is not asked: the job has a snapshot of its runtime."""
    name = f"{TRAIN_JOB.plural}-of-{gvk.plural}.{DOMAIN}"
    policy = _policy(name, ["CREATE"], [_ENV], _rules_of_runtimes())
    policy["spec"]["paramKind"] = {"apiVersion": gvk.api_version, "kind": gvk.kind}
    own = f"object.spec.runtimeRef.kind == '{gvk.kind}' && object.spec.runtimeRef.name == params.metadata.name"
    policy["spec"]["matchConditions"] = [{"name": "is-its-runtime", "expression": f"params != null && {own}"}]
    return policy, _binding(name, paramRef={"selector": {}, "parameterNotFoundAction": "Allow"})


_ENV = {"name": "env", "expression": "object.spec.?trainer.?env.orValue([])"}


def _variables() -> list[Json]:
    return [
        {"name": "patches", "expression": "object.spec.?runtimePatches.orValue([])"},
        {
            "name": "isPatched",
            "expression": "oldObject != null && "
            "object.spec.?runtimePatches.orValue([]) != oldObject.spec.?runtimePatches.orValue([])",
        },
    ]


def _rules_of_jobs() -> list[Json]:
    group, kinds = TRAIN_JOB.group, f"['{CLUSTER_TRAINING_RUNTIME.kind}', '{TRAINING_RUNTIME.kind}']"
    names = f"['{DATASET}', '{MODEL}', '{NODE}']"
    forbidden = "spec.runtimePatches: Forbidden: RuntimePatches"
    return [
        {
            "expression": f"object.spec.runtimeRef.apiGroup == '{group}' && object.spec.runtimeRef.kind in {kinds}",
            "messageExpression": "'unsupported runtime: ' + object.spec.runtimeRef.kind + '.' + "
            "object.spec.runtimeRef.apiGroup",
        },
        {
            "expression": f"variables.patches.all(p, p.manager.matches('{_MANAGER}'))",
            "message": 'spec.runtimePatches.manager: must be a domain-prefixed path (such as "acme.io/foo")',
        },
        {
            "expression": f"variables.patches.all(p, {_PATCHED_JOBS}.all(j, {_CONTAINERS}.all(c, "
            f"!(c.name in {names}) || c.?env.orValue([]).size() == 0)))",
            "message": f"spec.runtimePatches: must not have envs for the {DATASET}, {MODEL}, {NODE} containers",
        },
        {
            "expression": "!variables.isPatched || object.spec.?suspend.orValue(false) || "
            "oldObject.spec.?suspend.orValue(false)",
            "message": f"{forbidden} can only be modified when the TrainJob is suspended before or after the update",
        },
        {
            "expression": f"!variables.isPatched || {_ACTIVE}.size() == 0",
            "messageExpression": f"'{forbidden} cannot be modified when the JobSet\\'s ReplicatedJob ' + "
            f"{_ACTIVE}[0].name + ' is still active'",
        },
    ]


def _rules_of_runtimes() -> list[Json]:
    policy = "params.spec.?mlPolicy.?{0}.hasValue()"
    has_job = "params.spec.?template.?spec.?replicatedJobs.orValue([]).exists(j, j.name == '{0}')"
    reserved = [
        _reserved(policy.format("torch"), TORCH_RESERVED, "spec.trainer.env: must not have reserved envs, "
                  "invalid envs configured: "),
        _reserved(policy.format("mpi"), MPI_RESERVED, "spec.trainer.env: must not have reserved envs, "
                  "invalid envs configured: "),
        _reserved(policy.format("xgboost"), XGBOOST_RESERVED, "spec.trainer.env: reserved for the XGBoost runtime: "),
    ]  # fmt: skip
    initializers = [
        {
            "expression": f"!object.spec.?initializer.?{field}.hasValue() || {has_job.format(name)}",
            "message": f"spec.runtimeRef: must have {name} job when trainJob is configured with input {field}Config",
        }
        for name, field in ((DATASET, "dataset"), (MODEL, "model"))
    ]
    return [*reserved, *initializers]


def _reserved(has_policy: str, names: tuple[str, ...], text: str) -> Json:
    used = f"variables.env.filter(e, e.name in {list(names)}).map(e, e.name)"
    return {
        "expression": f"!{has_policy} || {used}.size() == 0",
        "messageExpression": f"'{text}[' + {used}.join(' ') + ']'",
    }


def _policy(name: str, operations: list[str], variables: list[Json], validations: list[Json]) -> Json:
    rule = {
        "apiGroups": [TRAIN_JOB.group],
        "apiVersions": [TRAIN_JOB.version],
        "operations": operations,
        "resources": [TRAIN_JOB.plural],
    }
    spec = {
        "failurePolicy": "Ignore",  # a rule that fails itself must not keep jobs out: the operator asks again
        "matchConstraints": {"resourceRules": [rule]},
        "variables": variables,
        "validations": [{**validation, "reason": "Forbidden"} for validation in validations],
    }
    return _object("ValidatingAdmissionPolicy", name, spec)


def _binding(name: str, **more: Json) -> Json:
    spec = {"policyName": name, "validationActions": ["Deny"], **more}
    return _object("ValidatingAdmissionPolicyBinding", name, spec)


def _object(kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
