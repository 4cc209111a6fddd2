"""Trainer's admission webhooks, as functions inside the API server of one machine."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.core import TemplateKind
from trainyard.kinds.trainjob import admission
from trainyard.kinds.trainjob.spec import GROUP
from trainyard.objects import Json, NamespacedName, Problem, encode, format_time, labels_of, operator_status
from trainyard.objects.json_equal import json_equal
from trainyard.objects.review import Read, Review


def review_job(kinds: dict[str, TemplateKind], new: Json, old: Json | None, read: Read, now: float) -> Review:
    """Set the time of changed patches, and refuse what the runtime does not allow: for a job that has begun, the
    snapshot of its runtime, so that a later edit of the runtime does not keep the job from being resumed."""
    new = _with_times(new, old, now)
    reference = new["spec"]["runtimeRef"]
    if unsupported := admission.unsupported_runtime(reference):
        return _answer("trainjob", new, [unsupported])
    kind = kinds[reference["kind"]]
    namespace = new["metadata"]["namespace"] if kind.namespaced else ""
    stored = read(kind.gvk, NamespacedName(namespace, reference["name"]))
    runtime = operator_status(old or {}).get("snapshot") or stored
    if runtime is None:
        return _answer("trainjob", new, _texts(new, [admission.missing_runtime(reference)]))
    problems = admission.refusals(new, runtime, old, _active_jobs(old or {}))
    warnings = admission.warnings(stored) if stored and not old else []
    return _answer("trainjob", new, _texts(new, problems), tuple(warnings))


def review_runtime(new: Json, old: Json | None, read: Read, now: float) -> Review:
    """Refuse a runtime that no job could have, unless its label switches that off."""
    if labels_of(new).get(admission.VALIDATION) == "disabled":
        return Review(new)
    return _answer(new["kind"].lower(), new, _texts(new, admission.runtime_refusals(new)))


def _answer(name: str, new: Json, texts: list[str], warnings: tuple[str, ...] = ()) -> Review:
    if not texts:
        return Review(new, "", warnings)
    text = f"[{', '.join(texts)}]" if len(texts) > 1 else texts[0]
    return Review(new, f'admission webhook "validator.{name}.{GROUP}" denied the request: {text}')


def _with_times(new: Json, old: Json | None, now: float) -> Json:
    """`time` of each patch is that of its last change."""
    patches = new["spec"].get("runtimePatches")
    if not patches:
        return new
    before = {patch["manager"]: patch for patch in ((old or {}).get("spec") or {}).get("runtimePatches") or ()}
    timed = [_with_time(patch, before.get(patch["manager"]), now) for patch in patches]
    return {**new, "spec": {**new["spec"], "runtimePatches": timed}}


def _with_time(patch: Json, before: Json | None, now: float) -> Json:
    if before is None:
        return patch if patch.get("time") else {**patch, "time": format_time(now)}
    same = json_equal({**patch, "time": ""}, {**before, "time": ""})
    return {**patch, "time": before.get("time") if same else format_time(now)}


def _active_jobs(job: Json) -> frozenset[str]:
    listed = (job.get("status") or {}).get("jobsStatus") or ()
    return frozenset(item["name"] for item in listed if item["active"])


def _texts(obj: Json, problems: list[Problem]) -> list[str]:
    return [_text(problem, value) for problem, value in zip(problems, _values(obj, problems), strict=True)]


def _text(problem: Problem, value: object) -> str:
    invalid = "" if problem.text.startswith("Forbidden: ") else f"Invalid value: {encode(value).decode()}: "
    return f"{problem.path}: {invalid}{problem.text}"


def _values(obj: Json, problems: list[Problem]) -> Iterator[object]:
    """The value that each problem is about. Problems of managers are in the order of the patches."""
    managers = iter(admission.invalid_managers(obj))
    for problem in problems:
        yield next(managers) if problem.path == "spec.runtimePatches.manager" else _value_at(obj, problem.path)


def _value_at(obj: Json, path: str) -> object:
    value: object = obj
    for step in path.replace("RuntimeRef", "runtimeRef").replace("[", ".").replace("]", "").split("."):
        if isinstance(value, list) and step.isdigit():
            value = value[int(step)]
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value
