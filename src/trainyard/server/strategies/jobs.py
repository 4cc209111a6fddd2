"""batch/v1 Jobs: the selector and the labels that tie pods to their Job are the server's to set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainyard.objects import Json, Problem, encode, is_true, parse_time
from trainyard.schema.checks import shown
from trainyard.server.metadata import label_problems
from trainyard.server.resources import Column, Resource
from trainyard.server.same import same
from trainyard.server.scale import selector_of
from trainyard.server.site import Site
from trainyard.server.strategies.job_rules import (
    manager_problems,
    name_problems,
    number_problems,
    policy_problems,
    status_problems,
    success_problems,
)
from trainyard.server.strategies.pod_rules import template_problems
from trainyard.server.strategies.pod_warnings import name_warnings, pod_warnings
from trainyard.server.strategies.shapes import fill, fill_empty
from trainyard.server.strategies.templates import containers_of, default_pod_spec
from trainyard.server.tables import AGE, NAME, human

CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
JOB_NAME = "batch.kubernetes.io/job-name"
RESTARTS = ("OnFailure", "Never")
MODES = ("NonIndexed", "Indexed")

GENERATED = (CONTROLLER_UID, JOB_NAME, "controller-uid", "job-name")
_FIXED = ("selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy")
_UNTIL_STARTED = ("nodeSelector", "tolerations", "affinity", "schedulingGates")


def prepare(new: Json, old: Json | None, site: Site) -> None:
    spec = new["spec"] = new.get("spec") or {}
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    fill(spec, backoffLimit=6 if spec.get("backoffLimitPerIndex") is None else 2**31 - 1)
    fill(spec, parallelism=1, completionMode="NonIndexed", suspend=False, manualSelector=False)
    fill(spec, podReplacementPolicy="TerminatingOrFailed" if spec.get("podFailurePolicy") is None else "Failed")
    if spec.get("podFailurePolicy") is not None:
        fill(spec["podFailurePolicy"], rules=None)
    for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ():
        for one in rule.get("onPodConditions") or ():
            fill_empty(one, status="True")
    fill(spec, template={})
    template = spec["template"]
    fill(template, metadata={}, spec={})
    default_pod_spec(template["spec"], at_home=False)
    if old is None:
        site.warnings.extend(name_warnings(new, "Pod names and hostnames"))
    if old is None or not same(template, old["spec"]["template"]):
        site.warnings.extend(pod_warnings(template["spec"], "spec.template.spec"))
    labels, meta = template["metadata"].get("labels") or {}, new["metadata"]
    labelled = bool(meta.get("labels"))
    _label(meta, labels)
    if old is not None:
        return
    new["status"] = {}
    if spec["manualSelector"]:
        if spec.get("selector"):
            spec["selector"] = {name: part for name, part in spec["selector"].items() if part}
        return
    uid, name = meta["uid"], meta.get("name", "")
    generated = dict(zip(GENERATED, (uid, name, uid, name), strict=True))
    template["metadata"]["labels"] = {**generated, **labels}
    selector = dict(spec.get("selector") or {})
    spec["selector"] = {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), CONTROLLER_UID: uid}}
    if not labelled and meta.get("labels") == labels and not meta.get("generateName"):
        meta["labels"] = {**meta.get("labels", {}), **generated}
    elif not label_problems(generated, ""):  # else the Job is refused, for those of its template
        _label(meta, template["metadata"]["labels"])


def generated(job: Json) -> list[tuple[str, ...]]:
    """The selector and the labels that the server makes, as fields of server-side apply."""
    if job["spec"].get("manualSelector"):
        return []
    labels = ("f:spec", "f:template", "f:metadata", "f:labels")
    return [("f:spec", "f:selector"), *((*labels, f"f:{name}") for name in GENERATED)]


def _label(meta: Json, labels: Json) -> None:
    """A Job without labels has those of its template."""
    if not meta.get("labels") and labels:
        meta["labels"] = dict(labels)


def prepare_status(new: Json, old: Json, sent: Json) -> None:
    """Numbers that are 0 are not told. Without labels the Job gets those of the template that was sent, or its own:
    these only if it stays, as the real server gives them to what it reads back."""
    meta, sent_template = new["metadata"], (sent.get("spec") or {}).get("template") or {}
    goes = "deletionTimestamp" in old["metadata"] and not meta.get("finalizers")
    for one in (sent_template,) if goes else (sent_template, old["spec"]["template"]):
        _label(meta, (one.get("metadata") or {}).get("labels") or {})
    status = new.get("status") or {}
    new["status"] = {name: part for name, part in status.items() if part != 0 or name in ("ready", "terminating")}
    for one in status.get("conditions") or ():
        fill(one, lastProbeTime=None, lastTransitionTime=None)


def check(new: Json, old: Json | None) -> list[Problem]:
    spec, path = new["spec"], "spec.template.spec.restartPolicy"
    found = [*number_problems(spec), *_selector_problems(new, old), *policy_problems(spec)]
    found += [*success_problems(spec), *manager_problems(spec.get("managedBy"))]
    if spec["completionMode"] not in MODES:
        supported = 'supported values: "NonIndexed", "Indexed"'
        text = f"Unsupported value: {shown(spec['completionMode'])}: {supported}"
        found.append(Problem("spec.completionMode", text))
    if spec["completionMode"] == "Indexed" and spec.get("completions") is None:
        found.append(Problem("spec.completions", "Required value: when completion mode is Indexed"))
    found += name_problems(new) if old is None else _changed(new, old)
    found += template_problems(spec["template"], "spec.template")
    policy = spec["template"]["spec"].get("restartPolicy")
    if policy not in RESTARTS:
        word = "Required value: valid" if policy == "Always" else f"Unsupported value: {shown(policy)}: supported"
        found.append(Problem(path, f'{word} values: "OnFailure", "Never"'))
    elif policy != "Never" and spec.get("podFailurePolicy") is not None:
        text = 'only "Never" is supported when podFailurePolicy is specified'
        found.append(Problem(path, f"Invalid value: {shown(policy)}: {text}"))
    return found


def _selector_problems(new: Json, old: Json | None) -> list[Problem]:
    """Who does not choose pods himself leaves that to the server, whole; who does has to find his own."""
    spec, path = new["spec"], "spec.selector"
    selector, labels = spec.get("selector"), (spec["template"].get("metadata") or {}).get("labels")
    wanted, found = (selector or {}).get("matchLabels") or {}, []
    if selector is None:
        found.append(Problem(path, "Required value"))
    if old is None and not spec.get("manualSelector"):
        uid, name = new["metadata"]["uid"], new["metadata"].get("name", "")
        ours = dict(zip(GENERATED, (uid, name, uid, name), strict=True))
        if any(ours.get(label) != value for label, value in wanted.items()):
            found.append(Problem(path, f"Invalid value: {encode(selector).decode()}: `selector` not auto-generated"))
        found += label_problems({JOB_NAME: name}, "spec.template.labels")
        for label, value in ours.items():
            if labels and labels.get(label) != value:
                where = f"spec.template.metadata.labels[{label}]"
                found.append(Problem(where, f"Invalid value: {shown(labels)}: must be '{value}'"))
    found += label_problems(wanted, f"{path}.matchLabels")
    misses = any((labels or {}).get(name) != value for name, value in wanted.items())
    if selector is None or misses:
        shown_labels = encode(labels).decode()
        text = f"Invalid value: {shown_labels}: `selector` does not match template `labels`"
        found.append(Problem("spec.template.metadata.labels", text))
    return found


def _changed(new: Json, old: Json) -> Iterator[Problem]:
    """What stays as it was made. Where a Job that waits may run can still be said."""
    now, before = new["spec"], old["spec"]
    for name in _FIXED:
        if not same(now.get(name), before.get(name)):
            yield Problem(f"spec.{name}", f"Invalid value: {shown(now.get(name))}: field is immutable")
    moved = now.get("completions") != before.get("completions")
    moved = moved and (now["completionMode"] != "Indexed" or now.get("completions") is not None)
    if moved and not (now["completionMode"] == "Indexed" and now.get("completions") == now.get("parallelism")):
        text = f"Invalid value: {shown(now.get('completions'))}: field is immutable"
        yield Problem("spec.completions", text)
    status = old.get("status") or {}
    waits = before.get("suspend") is True and not status.get("startTime") and not status.get("active")
    if waits and not same(_kept(now["template"]["spec"]), _kept(before["template"]["spec"])):
        yield Problem("spec.template.spec", f"Invalid value: {shown(now['template']['spec'])}: field is immutable")
    elif not waits and not same(now["template"], before["template"]):
        yield Problem("spec.template", f"Invalid value: {shown(now['template'])}: field is immutable")


def _kept(spec: Json) -> Json:
    kept = {name: part for name, part in spec.items() if name not in _UNTIL_STARTED}
    for group in ("initContainers", "containers"):
        kept[group] = [{**one, "resources": None} for one in spec.get(group) or ()]
    return kept


def fields(job: Json) -> Mapping[str, str]:
    return {"status.successful": str((job.get("status") or {}).get("succeeded") or 0)}


def shown_status(job: Json, now: float) -> str:
    conditions = (job.get("status") or {}).get("conditions")
    for word in ("Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if is_true(conditions, word):
            return word
    return "Terminating" if "deletionTimestamp" in job["metadata"] else "Running"


def completions(job: Json, now: float) -> str:
    spec, done = job["spec"], (job.get("status") or {}).get("succeeded") or 0
    if spec.get("completions") is not None:
        return f"{done}/{spec['completions']}"
    width = spec.get("parallelism") or 0
    return f"{done}/1 of {width}" if width > 1 else f"{done}/1"


def duration(job: Json, now: float) -> str:
    status = job.get("status") or {}
    started, ended = parse_time(status.get("startTime")), parse_time(status.get("completionTime"))
    return "" if started is None else human((now if ended is None else ended) - started)


def containers(obj: Json, now: float) -> str:
    return ",".join(one["name"] for one in containers_of(obj["spec"]["template"]["spec"]))


def images(obj: Json, now: float) -> str:
    return ",".join(one["image"] for one in containers_of(obj["spec"]["template"]["spec"]))


def selector_text(obj: Json, now: float) -> str:
    return selector_of(obj) or "<none>"


RESOURCES = (
    Resource(
        group="batch",
        kind="Job",
        plural="jobs",
        categories=("all",),
        status=True,
        generation=True,
        # For the sake of old clients the real one keeps pods of a Job that is deleted without a word about them.
        propagation="Orphan",
        prepare=prepare,
        prepare_status=prepare_status,
        check=check,
        check_status=status_problems,
        unowned=generated,
        fields=fields,
        field_names=("status.successful",),
        columns=(
            NAME,
            Column("Status", shown_status),
            Column("Completions", completions),
            Column("Duration", duration),
            AGE,
            Column("Containers", containers, priority=1),
            Column("Images", images, priority=1),
            Column("Selector", selector_text, priority=1),
        ),
    ),
)
