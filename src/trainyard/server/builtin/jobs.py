"""batch/v1 Jobs: defaulting (selector and pod labels are generated), update rules and columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainyard.api_types.defaults import set_defaults, set_defaults_for_zero
from trainyard.api_types.names import label_problems
from trainyard.api_types.pod_defaults import containers_of, default_pod_spec
from trainyard.api_types.pod_rules import template_problems
from trainyard.objects import Json, Problem, encode, is_condition_true, parse_time
from trainyard.objects.json_equal import json_equal
from trainyard.schema.checks import json_text
from trainyard.server.builtin.job_rules import manager_problems, number_problems, policy_problems
from trainyard.server.builtin.pod_warnings import template_warnings
from trainyard.server.model.context import RequestContext
from trainyard.server.model.resources import Column, Resource
from trainyard.server.registry.scale import selector_of
from trainyard.server.registry.tables import AGE, NAME, short_duration

CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
JOB_NAME = "batch.kubernetes.io/job-name"
RESTARTS = ("OnFailure", "Never")

GENERATED = (CONTROLLER_UID, JOB_NAME, "controller-uid", "job-name")
_IMMUTABLE = (
    *("spec.selector", "spec.completionMode", "spec.podFailurePolicy"),
    *("spec.backoffLimitPerIndex", "spec.managedBy", "spec.successPolicy"),
)
_MUTABLE_WHILE_SUSPENDED = ("nodeSelector", "tolerations", "affinity", "schedulingGates")


def prepare(new: Json, old: Json | None, context: RequestContext) -> None:
    """The defaults of a Job, its selector and its labels."""
    spec = new["spec"] = new.get("spec") or {}
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    set_defaults(spec, backoffLimit=6 if spec.get("backoffLimitPerIndex") is None else 2**31 - 1)
    set_defaults(spec, parallelism=1, completionMode="NonIndexed", suspend=False, manualSelector=False)
    set_defaults(spec, podReplacementPolicy="TerminatingOrFailed" if spec.get("podFailurePolicy") is None else "Failed")
    for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            set_defaults_for_zero(pattern, status="True")
    set_defaults(spec, template={})
    template = spec["template"]
    set_defaults(template, metadata={}, spec={})
    default_pod_spec(template["spec"], is_pod=False)
    labels, meta = template["metadata"].get("labels") or {}, new["metadata"]
    had_labels = bool(meta.get("labels"))
    _default_labels(meta, labels)
    if old is not None:
        return
    new["status"] = {}
    if spec["manualSelector"]:
        if spec.get("selector"):
            spec["selector"] = {name: value for name, value in spec["selector"].items() if value}
        return
    uid, name = meta["uid"], meta.get("name", "")
    generated = dict(zip(GENERATED, (uid, name, uid, name), strict=True))
    template["metadata"]["labels"] = {**generated, **labels}
    selector = dict(spec.get("selector") or {})
    spec["selector"] = {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), CONTROLLER_UID: uid}}
    if not had_labels and meta.get("labels") == labels and not meta.get("generateName"):
        meta["labels"] = {**meta.get("labels", {}), **generated}
    elif not label_problems(generated, ""):  # invalid labels are reported at the template's path only
        _default_labels(meta, template["metadata"]["labels"])


def generated_fields(job: Json) -> list[tuple[str, ...]]:
    """The generated selector and labels as field paths (fieldsV1), which server-side apply gives no manager."""
    if job["spec"].get("manualSelector"):
        return []
    labels = ("f:spec", "f:template", "f:metadata", "f:labels")
    return [("f:spec", "f:selector"), *((*labels, f"f:{name}") for name in GENERATED)]


def _default_labels(meta: Json, labels: Json) -> None:
    """A Job without labels gets those of its template."""
    if not meta.get("labels") and labels:
        meta["labels"] = dict(labels)


def check(new: Json, old: Json | None) -> list[Problem]:
    """The problems of a Job, with the texts of kube-apiserver."""
    spec, path = new["spec"], "spec.template.spec.restartPolicy"
    problems = [*number_problems(spec), *_selector_problems(new, old), *policy_problems(spec)]
    problems += manager_problems(spec.get("managedBy"))
    if old is not None:
        problems += _update_problems(new, old)
    problems += template_problems(spec["template"], "spec.template")
    policy = spec["template"]["spec"].get("restartPolicy")
    if policy not in RESTARTS:
        prefix = "Required value: valid" if policy == "Always" else f"Unsupported value: {json_text(policy)}: supported"
        problems.append(Problem(path, f'{prefix} values: "OnFailure", "Never"'))
    elif policy != "Never" and spec.get("podFailurePolicy") is not None:
        text = 'only "Never" is supported when podFailurePolicy is specified'
        problems.append(Problem(path, f"Invalid value: {json_text(policy)}: {text}"))
    return problems


def _selector_problems(new: Json, old: Json | None) -> list[Problem]:
    """Without `manualSelector`, selector and labels must be the generated ones; the selector must always match the
    labels of the pod template."""
    spec, path = new["spec"], "spec.selector"
    selector, labels = spec.get("selector"), (spec["template"].get("metadata") or {}).get("labels")
    match_labels, problems = (selector or {}).get("matchLabels") or {}, []
    if selector is None:
        problems.append(Problem(path, "Required value"))
    if old is None and not spec.get("manualSelector"):
        uid, name = new["metadata"]["uid"], new["metadata"].get("name", "")
        generated_labels = dict(zip(GENERATED, (uid, name, uid, name), strict=True))
        if any(generated_labels.get(label) != value for label, value in match_labels.items()):
            problems.append(Problem(path, f"Invalid value: {encode(selector).decode()}: `selector` not auto-generated"))
        problems += label_problems({JOB_NAME: name}, "spec.template.labels")
        for label, value in generated_labels.items():
            if labels and labels.get(label) != value:
                label_path = f"spec.template.metadata.labels[{label}]"
                problems.append(Problem(label_path, f"Invalid value: {json_text(labels)}: must be '{value}'"))
    problems += label_problems(match_labels, f"{path}.matchLabels")
    is_mismatch = any((labels or {}).get(name) != value for name, value in match_labels.items())
    if selector is None or is_mismatch:
        shown_labels = encode(labels).decode()
        text = f"Invalid value: {shown_labels}: `selector` does not match template `labels`"
        problems.append(Problem("spec.template.metadata.labels", text))
    return problems


def _update_problems(new: Json, old: Json) -> Iterator[Problem]:
    """Problems of an update. The scheduling fields and resources of the template are mutable while a suspended Job has
    not started."""
    spec, old_spec = new["spec"], old["spec"]
    completions_changed = spec.get("completions") != old_spec.get("completions")
    completions_changed = completions_changed and (
        spec["completionMode"] != "Indexed" or spec.get("completions") is not None
    )
    if completions_changed and not (
        spec["completionMode"] == "Indexed" and spec.get("completions") == spec.get("parallelism")
    ):
        text = f"Invalid value: {json_text(spec.get('completions'))}: field is immutable"
        yield Problem("spec.completions", text)
    status = old.get("status") or {}
    is_unstarted = old_spec.get("suspend") is True and not status.get("startTime") and not status.get("active")
    if is_unstarted and not json_equal(
        _immutable_pod_spec(spec["template"]["spec"]), _immutable_pod_spec(old_spec["template"]["spec"])
    ):
        yield Problem("spec.template.spec", f"Invalid value: {json_text(spec['template']['spec'])}: field is immutable")
    elif not is_unstarted and not json_equal(spec["template"], old_spec["template"]):
        yield Problem("spec.template", f"Invalid value: {json_text(spec['template'])}: field is immutable")


def _immutable_pod_spec(spec: Json) -> Json:
    fields = {name: value for name, value in spec.items() if name not in _MUTABLE_WHILE_SUSPENDED}
    for group in ("initContainers", "containers"):
        fields[group] = [{**container, "resources": None} for container in spec.get(group) or ()]
    return fields


def _field_labels(job: Json) -> Mapping[str, str]:
    return {"status.successful": str((job.get("status") or {}).get("succeeded") or 0)}


def status_text(job: Json, now: float) -> str:
    """The cell STATUS of a Job, as kubectl shows it."""
    conditions = (job.get("status") or {}).get("conditions")
    for condition_type in ("Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if is_condition_true(conditions, condition_type):
            return condition_type
    return "Terminating" if "deletionTimestamp" in job["metadata"] else "Running"


def completions(job: Json, now: float) -> str:
    """The cell COMPLETIONS of a Job: `1/3`, or `0/1 of 3` without spec.completions."""
    spec, succeeded = job["spec"], (job.get("status") or {}).get("succeeded") or 0
    if spec.get("completions") is not None:
        return f"{succeeded}/{spec['completions']}"
    parallelism = spec.get("parallelism") or 0
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def duration(job: Json, now: float) -> str:
    """The cell DURATION of a Job: up to its completion, or to `now` (Unix seconds)."""
    status = job.get("status") or {}
    started, ended = parse_time(status.get("startTime")), parse_time(status.get("completionTime"))
    return "" if started is None else short_duration((now if ended is None else ended) - started)


def containers(obj: Json, now: float) -> str:
    """The cell CONTAINERS of a workload: the names in its pod template."""
    return ",".join(container["name"] for container in containers_of(obj["spec"]["template"]["spec"]))


def images(obj: Json, now: float) -> str:
    """The cell IMAGES of a workload: the images in its pod template."""
    return ",".join(container["image"] for container in containers_of(obj["spec"]["template"]["spec"]))


def selector_text(obj: Json, now: float) -> str:
    """The cell SELECTOR of a workload."""
    return selector_of(obj) or "<none>"


RESOURCES = (
    Resource(
        group="batch",
        kind="Job",
        plural="jobs",
        categories=("all",),
        status=True,
        generation=True,
        immutable=_IMMUTABLE,
        warnings=template_warnings,
        # kube-apiserver's default for batch/v1 Jobs, kept for old clients: a DELETE without propagationPolicy orphans.
        propagation="Orphan",
        prepare=prepare,
        check=check,
        unowned=generated_fields,
        fields=_field_labels,
        field_names=("status.successful",),
        columns=(
            NAME,
            Column("Status", status_text),
            Column("Completions", completions),
            Column("Duration", duration),
            AGE,
            Column("Containers", containers, priority=1),
            Column("Images", images, priority=1),
            Column("Selector", selector_text, priority=1),
        ),
    ),
)
