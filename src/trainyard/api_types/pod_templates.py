"""What an API server would say of the pods of a template, before there are any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainyard.api_types.decoding import examine, normalize
from trainyard.api_types.pod_defaults import default_pod_spec
from trainyard.api_types.pod_rules import template_problems
from trainyard.api_types.schemas import built_in
from trainyard.objects import Json, Problem, decode, encode
from trainyard.objects.patterns import lazy_pattern

_TEMPLATE = built_in("api.core.v1.PodTemplateSpec")
# What OpenAPI calls required and a real server takes as empty if it is missing: NOT_REQUIRED of
# tools/generate_pod_types.py, which a test asks the server for.
_EMPTY_IF_MISSING = lazy_pattern(
    r"\.(preference|httpHeaders\[\d+\]\.value|sysctls\[\d+\]\.value|sleep\.seconds|iscsi\.lun|scaleIO\.secretRef)$"
)


def pod_problems(template: Json, path: str) -> list[Problem]:
    """The problems for which an API server refuses every pod of the template at `path`, with its words and a fix.

    Unknown fields pass: a newer API server may know them. Values of a wrong type are reported alone, because the rules
    cannot read them. The template is not changed.
    """
    findings = list(examine(template, _TEMPLATE, path))
    unknown = [finding.path for finding in findings if finding.kind == "unknown"]
    findings = [
        finding
        for finding in findings
        if finding.kind != "unknown" and not (finding.kind == "required" and _EMPTY_IF_MISSING.search(finding.path))
    ]
    if wrong_types := [finding for finding in findings if finding.kind in ("type", "duplicate")]:
        return [Problem(finding.path, finding.text) for finding in wrong_types]
    problems = [Problem(finding.path, finding.text) for finding in findings]
    pod_template: Any = decode(encode(normalize(template, _TEMPLATE)))
    default_pod_spec(pod_template.setdefault("spec", {}))
    unique = {problem.path: problem for problem in (*template_problems(pod_template, path), *problems)}
    return [
        Problem(_path_in_template(problem, path), _with_fix(problem.text))
        for problem in unique.values()
        if not ("must specify" in problem.text and _has_field_within(problem.path, unknown))
    ]


def _has_field_within(path: str, fields: Sequence[str]) -> bool:
    return any(field.startswith((f"{path}.", f"{path}[")) for field in fields)


def _path_in_template(problem: Problem, path: str) -> str:
    """The path of the field in the template: kube-apiserver leaves out `metadata` there."""
    field = problem.path.removeprefix(f"{path}.")
    return f"{path}.metadata.{field}" if field in ("labels", "annotations") else problem.path


def _with_fix(text: str) -> str:
    """The text with what to do, where kube-apiserver says only what is wrong."""
    if text.startswith("Duplicate value"):
        return f"{text}; write it once"
    return f"{text}: write it" if text == "Required value" else text
