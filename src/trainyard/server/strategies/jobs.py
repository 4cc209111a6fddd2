"""batch/v1 Jobs: the selector and the labels that tie pods to their Job are the server's to set."""

from __future__ import annotations

from collections.abc import Mapping

from trainyard.objects import Json, Problem, is_true, parse_time
from trainyard.schema.checks import shown
from trainyard.server.metadata import name_problem
from trainyard.server.resources import Column, Resource
from trainyard.server.scale import selector_of
from trainyard.server.site import Site
from trainyard.server.strategies.shapes import BOOLEAN, COUNT, FREE, STRING, fill, needed, obj, one_of, whole
from trainyard.server.strategies.templates import (
    SELECTOR,
    TEMPLATE,
    containers_of,
    default_pod_spec,
    template_problems,
)
from trainyard.server.tables import AGE, NAME, human

CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
JOB_NAME = "batch.kubernetes.io/job-name"
RESTARTS = ("OnFailure", "Never")

_SPEC = obj(
    ("template",),
    template=needed(TEMPLATE),
    parallelism=COUNT,
    completions=COUNT,
    backoffLimit=COUNT,
    activeDeadlineSeconds=COUNT,
    ttlSecondsAfterFinished=COUNT,
    suspend=BOOLEAN,
    manualSelector=BOOLEAN,
    completionMode=one_of("NonIndexed", "Indexed"),
    selector=SELECTOR,
    podFailurePolicy=FREE,
    managedBy=STRING,
)


def prepare(new: Json, old: Json | None, site: Site) -> None:
    spec = new["spec"]
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    fill(spec, parallelism=1, backoffLimit=6, completionMode="NonIndexed", suspend=False, manualSelector=False)
    fill(spec, podReplacementPolicy="TerminatingOrFailed")
    template = spec["template"]
    default_pod_spec(template["spec"])
    fill(template, metadata={})
    labels = dict(template["metadata"].get("labels") or {})
    if old is None and not spec["manualSelector"]:
        uid, name = new["metadata"]["uid"], new["metadata"].get("name", "")
        ours = {CONTROLLER_UID: uid, JOB_NAME: name, "controller-uid": uid, "job-name": name}
        template["metadata"]["labels"] = {**labels, **ours}
        if spec.get("selector") is None:
            spec["selector"] = {"matchLabels": {CONTROLLER_UID: uid}}
    elif old is not None:
        _keep_generated(spec, old["spec"])
    if not new["metadata"].get("labels") and template["metadata"].get("labels"):
        new["metadata"]["labels"] = dict(template["metadata"]["labels"])
    if old is None:
        new["status"] = {}


def _keep_generated(spec: Json, old: Json) -> None:
    """An update that sends the file again, without what was generated, means what is stored."""
    fill(spec, selector=old.get("selector"))
    before = (old["template"].get("metadata") or {}).get("labels") or {}
    labels = dict(spec["template"]["metadata"].get("labels") or {})
    for name in (CONTROLLER_UID, JOB_NAME, "controller-uid", "job-name"):
        if name in before:
            labels.setdefault(name, before[name])
    if labels:
        spec["template"]["metadata"]["labels"] = labels


def check(new: Json, old: Json | None) -> list[Problem]:
    spec = new["spec"]
    found = template_problems(spec["template"], "spec.template")
    policy = spec["template"]["spec"].get("restartPolicy")
    if policy not in RESTARTS:
        text = 'Required value: valid values: "OnFailure", "Never"'
        found.append(Problem("spec.template.spec.restartPolicy", text))
    if old is None:
        found += _selector_problems(new)
    if old is None and (bad := name_problem(new["metadata"].get("name", ""), "subdomain")) is None:
        name = new["metadata"].get("name", "")
        if len(name) > 63:
            text = f"Invalid value: {shown(name)}: must be no more than 63 characters"
            found.append(Problem("spec.template.labels", text))
    elif old is None and bad:
        return found
    if spec.get("completionMode") == "Indexed" and spec.get("completions") is None:
        found.append(Problem("spec.completions", "Required value: when completion mode is Indexed"))
    return found


def _selector_problems(new: Json) -> list[Problem]:
    """Who does not choose pods himself leaves that to the server, whole; who does has to find his own."""
    spec, path = new["spec"], "spec.selector"
    selector, labels = spec.get("selector"), (spec["template"].get("metadata") or {}).get("labels")
    wanted = (selector or {}).get("matchLabels") or {}
    if not spec.get("manualSelector"):
        ours = {"matchLabels": {CONTROLLER_UID: new["metadata"]["uid"]}}
        if selector == ours:
            return []
        merged = {**(selector or {}), "matchLabels": {**wanted, **ours["matchLabels"]}}
        return [Problem(path, f"Invalid value: {shown(merged)}: `selector` not auto-generated")]
    found = [] if selector is not None else [Problem(path, "Required value")]
    if selector is None or any((labels or {}).get(name) != value for name, value in wanted.items()):
        text = f"Invalid value: {shown(labels)}: `selector` does not match template `labels`"
        found.append(Problem("spec.template.metadata.labels", text))
    return found


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
        immutable=("spec.template", "spec.selector", "spec.completionMode", "spec.completions"),
        schema=whole(_SPEC),
        prepare=prepare,
        check=check,
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
