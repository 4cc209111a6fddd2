"""Generates the documentation page of a kind from its `Kind` value. Pure.

Rules for this file:
- No code here is for a single kind: a page has what its Kind value has. Texts common to all kinds are in the tables.
- A page is Markdown, the same text for the same value; a test compares it with the files in `docs/kinds`.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.core import Kind, RestartScope, with_aliases
from trainyard.core.gangs import GANG_IGNORED
from trainyard.core.job_state import STALLED, SUCCESS_IN_DOUBT
from trainyard.core.policies.restart_limit import RESTART_LIMIT
from trainyard.kinds.definitions.crds import schema
from trainyard.kinds.definitions.immutability import rules_of
from trainyard.objects import Json

POLICIES = {
    "cleanPodPolicy": "which children are deleted when the job has ended: `None`; `Running`, those that still run, so "
    "that ended pods keep their logs; `All`",
    "ttlSecondsAfterFinished": "the job and its children are deleted this many seconds after its end",
    "activeDeadlineSeconds": "a job that has not ended this many seconds after its start (or resume) fails with reason "
    "`DeadlineExceeded`, and its running pods are stopped",
    "backoffLimit": "if more attempts of its replicas than this have failed, the job fails with reason "
    "`BackoffLimitExceeded`, and its running pods are stopped; disruptions (drain, eviction, preemption) do not count",
    "suspend": "while true, no replica runs; afterwards replicas are created from the current spec",
}
"""What each policy does (docs/rules.md S2 to S6)."""
TEMPLATE_TTL = "in the object that has the templates: the pods are deleted this many seconds after the job's end"
MANAGED_BY = "the operator ignores a job with any other value than {}"

CONDITIONS = {
    "Created": "the job is accepted",
    "Running": "at least one replica runs; the message lists replicas that wait, with the reason",
    "Suspended": "no replica runs, because of `suspend`",
    "Restarting": "a replica has failed and is retried; the message has its exit code",
    "Succeeded": "the job has ended with success",
    "Failed": "the job has ended with a failure; the message has replica, container, exit code and the fix",
    SUCCESS_IN_DOUBT: "the launcher has ended with exit code 0, and a worker was lost before that, or none was used",
    STALLED: "no replica has made a step, or shown another sign of life, for the annotation "
    "`trainyard.dev/progress-deadline`; the message names the pod that stopped first ([hangs](../hangs.md))",
    "Degraded": "a replica has failed for good, or TensorBoard does not run, and the job continues without it",
    "NameConflict": "a foreign object has the name of one of the job's children",
    "Blocked": "a child cannot be created, or gets no pod: a quota, a LimitRange, an admission policy, PodSecurity, "
    "a webhook, missing permissions, or a pod of an older attempt that does not terminate",
    "SpecChangeIgnored": "an edit of the spec has no effect",
    "UnknownFields": "the spec has unknown fields",
    GANG_IGNORED: "the pods are scheduled one by one: the cluster, or a part of it, does not serve gangs "
    "([gangs](../gangs.md))",
    "AnnotationIgnored": "an annotation has a value that is not understood, and so no effect",
}
"""What each condition means when it is True."""

RESTARTS = {
    RestartScope.ROLE: "a replica that ends with a retryable exit code is created again",
    RestartScope.GANG: (
        "if a replica ends with a retryable exit code all replicas are created again: the others cannot continue "
        "without it"
    ),
    RestartScope.SLOT: "only a replica that ends with a retryable exit code is created again",
}
BACK_OFF = (
    "The first time this is at once, and after each attempt that made progress, which is one longer than the back-off "
    "that would be due, at least 10 s. Back-off begins with the second attempt in a row without progress: 10 s after "
    "its end, doubling to 6 minutes; for a replica that is created again alone 10 s after its start. The annotation "
    f"`{RESTART_LIMIT}: 5/1h` fails the job instead of a sixth restart within an hour (units: s, m, h, d)."
)


def kind_page(kind: Kind) -> str:
    """The page of the kind as Markdown."""
    sections = (_head(kind), _fields(kind), _rules(kind), _columns(kind), _policies(kind), _conditions(kind))
    return "\n".join(line for section in sections for line in section)


def _head(kind: Kind) -> Iterator[str]:
    gvk = kind.gvk
    yield f"# {gvk.kind}{'' if gvk.version.startswith('v1') else f' {gvk.version}'}"
    yield ""
    yield "<!-- Written by `python -m tools.generate_kind_pages` from the kind's value; edit that. -->"
    yield ""
    yield _table_cell(schema(kind)["properties"]["spec"].get("description", ""))
    yield ""
    other_groups = (
        f", also `{'`, `'.join(f'{group}/{gvk.version}' for group in kind.api.groups)}`" if kind.api.groups else ""
    )
    short = f"; short names `{'`, `'.join(kind.api.short_names)}`" if kind.api.short_names else ""
    categories = f"; in `kubectl get {'`, `'.join(kind.api.categories)}`" if kind.api.categories else ""
    yield f"- `apiVersion: {gvk.api_version}`{other_groups}, `kind: {gvk.kind}`"
    yield f"- `kubectl get {gvk.plural}` or `{kind.api.singular}`{short}{categories}"
    yield f"- the container whose exit code counts is named `{kind.roles.container}`"
    child_kinds = ", ".join(f"{child.kind} (`{child.api_version}`)" for child in kind.roles.child_resources)
    yield f"- children: {child_kinds}"
    if kind.diagnosis.doubts:  # of the kinds whose processes an MPI starts
        yield "- MPI: Open MPI, MPICH or Intel MPI; with which versions it is tested: [images](../images.md#tested)"
    yield ""


def _fields(kind: Kind) -> Iterator[str]:
    yield "## Fields of `spec`"
    yield ""
    yield "| field | type | default | meaning |"
    yield "|---|---|---|---|"
    for path, node in _field_schemas("", schema(kind)["properties"]["spec"]):
        default = f"`{_json_text(node['default'])}`" if "default" in node else ""
        alias = f"The same as `{kind.api.field_aliases[path]}`." if path in kind.api.field_aliases else ""
        meaning = alias or _table_cell(node.get("description", "")) or _table_cell(POLICIES.get(path, ""))
        yield f"| `{path}` | {_type(node)} | {default} | {meaning} |"
    yield ""
    yield "Other fields are kept, and listed in the condition `UnknownFields`. A template is a PodTemplateSpec with all"
    yield "of its fields."
    yield ""


def _field_schemas(path: str, node: Json) -> Iterator[tuple[str, Json]]:
    """Every field below a schema with its path, except those of pod templates and below alternative spellings."""
    for name, field in (node.get("properties") or {}).items():
        field_path = f"{path}.{name}" if path else name
        yield field_path, field
        if name == "template" or not _is_first_spelling(name, node):
            continue
        yield from _field_schemas(field_path, field)
        if "items" in field:
            yield from _field_schemas(f"{field_path}[]", field["items"])
        if isinstance(field.get("additionalProperties"), dict):
            yield from _field_schemas(f"{field_path}.NAME", field["additionalProperties"])


def _is_first_spelling(name: str, node: Json) -> bool:
    """False for a field of which the schema has another spelling (`replica_specs` of `replicaSpecs`) before it."""
    normalized = name.lower().replace("_", "")
    spellings = [spelling for spelling in node["properties"] if spelling.lower().replace("_", "") == normalized]
    return bool(spellings[0] == name)


def _type(node: Json) -> str:
    if "enum" in node:
        return ", ".join(f"`{value}`" for value in node["enum"])
    if node.get("type") == "array":
        return f"list of {_type(node['items'])}"
    if isinstance(node.get("additionalProperties"), dict):
        return f"map of {_type(node['additionalProperties'])}"
    low, high = node.get("minimum"), node.get("maximum")
    bounds = f", {low} to {high}" if low is not None and high is not None else ""
    return f"{node.get('type', 'any')}{bounds}"


def _rules(kind: Kind) -> Iterator[str]:
    yield "## Rules"
    yield ""
    yield "An API server refuses a job that violates one, with the same message as `trainyard lint`."
    yield ""
    yield "| where | rule |"
    yield "|---|---|"
    rows: dict[str, None] = {}  # in their order; two rules may check one field for one reason
    for rule in with_aliases(rules_of(kind), {}):
        path = ".".join(filter(None, (rule.path, rule.field)))
        operation = " (an edit)" if rule.transition else ""
        rows[f"| `{path}`{operation} | {_table_cell(rule.default_message)} |"] = None
    yield from rows
    yield ""


def _columns(kind: Kind) -> Iterator[str]:
    yield "## Columns of `kubectl get`"
    yield ""
    wide = [column["name"] for column in kind.api.columns if column.get("priority")]
    default = [column["name"] for column in kind.api.columns if not column.get("priority")]
    yield f"NAME, {', '.join(default)}" + (f"; with `-o wide` also {', '.join(wide)}." if wide else ".")
    yield ""


def _policies(kind: Kind) -> Iterator[str]:
    yield "## Policies"
    yield ""
    if kind.api.policy_field:
        yield f"They are fields of `spec.{kind.api.policy_field}`."
        yield ""
    yield "| policy | what it does |"
    yield "|---|---|"
    managers = " or ".join(f"`{manager}`" for manager in kind.api.managers)
    own = {"ttlSecondsAfterFinished": TEMPLATE_TTL} if kind.template_source else {}
    for name, text in {**POLICIES, **own, "managedBy": MANAGED_BY.format(managers)}.items():
        yield f"| `{name}` | {text} |"
    yield ""
    limit = (
        f"Without `backoffLimit`, {kind.lifecycle.default_backoff_limit + 1} failed attempts end the job."
        if kind.lifecycle.default_backoff_limit is not None
        else ""
    )
    scope = kind.lifecycle.restart_scope
    text = RESTARTS[scope] if isinstance(scope, RestartScope) else kind.lifecycle.restart_text
    yield f"Retries: {text}. {BACK_OFF} {limit}".rstrip()
    yield ""
    if kind.lifecycle.success_text:
        yield f"Success: {kind.lifecycle.success_text}."
        yield ""


def _conditions(kind: Kind) -> Iterator[str]:
    yield "## Conditions"
    yield ""
    yield "| condition | when it is True |"
    yield "|---|---|"
    for name, text in CONDITIONS.items():
        if name == SUCCESS_IN_DOUBT and not kind.diagnosis.doubts:
            continue
        alias = (
            f" (also written as `{kind.status.condition_aliases[name]}`)"
            if name in kind.status.condition_aliases
            else ""
        )
        yield f"| `{name}`{alias} | {text} |"
    yield ""
    yield f"Events come from `{kind.status.source}`."
    yield ""


def _json_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value) or '""'


def _table_cell(text: str) -> str:
    """The text on one line, with `|` escaped for a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")
