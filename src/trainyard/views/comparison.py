"""What differs between runs: from the specs of their jobs, for the page that compares them.

- Roles, containers and env are compared by name: their order is no difference. The main container has no name here, so
  that jobs of several kinds can be compared. Resources are compared by value: 1000m is 1.
- A field with the same value in all roles of each run is compared once; another one by role, in the roles that at least
  two runs have.
- A value that comes from a Secret is in no job. A literal value of env whose name is that of a secret is masked,
  wherever it appears.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from trainyard.core import Config, parse_job
from trainyard.kinds import kind_of
from trainyard.objects import Json, as_dict
from trainyard.objects.quantities import exact
from trainyard.views.masking import mask_env, masker

MIN_RUNS, MAX_RUNS = 2, 8
MAX_TEXT, CONTEXT = 400, 40  # characters of a value, and of what it has in common with the others before its difference


class ComparedRun(msgspec.Struct, frozen=True, rename="camel"):
    """One run. Times in Unix seconds; `peak_memory`: the largest of a replica in bytes; `metrics`: the last values that
    the leading replica has reported, as `json_numbers`."""

    uid: str
    namespace: str
    kind: str
    name: str
    state: str
    restarts: int
    created: float | None
    started: float | None
    ended_at: float | None = msgspec.field(name="ended")
    peak_memory: int | None
    metrics: dict[str, float | str] = {}


class Difference(msgspec.Struct, frozen=True):
    """A field that is not the same in all runs. `roles`: where it differs, () for the whole job. `values`: one for each
    run, None where it has no such field."""

    field: str
    roles: tuple[str, ...]
    values: tuple[str | None, ...]


class Comparison(msgspec.Struct, frozen=True):
    """The runs that are known, what differs between them, and the uids that no job has."""

    runs: list[ComparedRun]
    differences: list[Difference]
    unknown: list[str]


def refusal(runs: int) -> str:
    """Why so many runs are not compared, and what to do; "" if they are."""
    if MIN_RUNS <= runs <= MAX_RUNS:
        return ""
    number = "one job" if runs == 1 else f"{runs or 'no'} jobs"
    return f"the address names {number}; choose {MIN_RUNS} to {MAX_RUNS} in the list, by their box or the space key"


IMAGE, COMMAND, ARGS, ENV, ENV_FROM, REQUEST, LIMIT = range(7)
_TITLES = ("image", "command", "args", "env", "env from", "requests", "limits")


class _Field(NamedTuple):
    """A field of a container, in the order of the page. `container`: "" for the main one."""

    container: str
    part: int
    name: str = ""

    @property
    def title(self) -> str:
        return " ".join(filter(None, (self.container, _TITLES[self.part], self.name)))

    def comparable(self, text: str | None) -> Any:
        """What is the same for values that are."""
        quantity = exact(text) if text is not None and self.part in (REQUEST, LIMIT) else None
        return text if quantity is None else quantity


_Fields = dict[_Field, str]


class _Run(NamedTuple):
    """A job's spec. The names of its roles are in lower case."""

    kind: str
    main_container: str
    replicas: dict[str, int]
    roles: dict[str, _Fields]


def differences(jobs: Sequence[Json]) -> list[Difference]:
    """What differs between these jobs, in the order of the page."""
    secrets: list[str] = []
    masked = [mask_env(job, secrets) for job in jobs]
    mask = masker(secrets)
    runs, shown = [_run(job, str) for job in jobs], [_run(job, mask) for job in masked]
    rows = [
        Difference("kind", (), tuple(run.kind for run in runs)),
        Difference("main container", (), tuple(run.main_container for run in runs)),
    ]
    for role in _union(run.replicas for run in runs):
        counts = [run.replicas.get(role) for run in runs]
        rows.append(Difference("replicas", (role,), tuple(None if count is None else str(count) for count in counts)))
    rows = [row for row in rows if len(set(row.values)) > 1]
    for field in sorted({field for run in runs for fields in run.roles.values() for field in fields}):
        for roles in _differing_roles(field, runs):
            rows.append(Difference(field.title, roles, _excerpts(_values(field, roles, shown))))
    return rows


_Mask = Callable[[str], str]


def _run(job: Json, mask: _Mask) -> _Run:
    kind, name = kind_of(job), f"{job.get('kind')} {job.get('apiVersion')}"
    if kind is None:
        return _Run(name, "", {}, {})
    roles = parse_job(kind, job, Config()).parsed.roles
    return _Run(
        name,
        kind.roles.container,
        {role.name.lower(): role.replicas for role in roles},
        {
            role.name.lower(): dict(_template_fields(role.template or {}, role.container or kind.roles.container, mask))
            for role in roles
        },
    )


def _template_fields(template: Json, main: str, mask: _Mask) -> Iterator[tuple[_Field, str]]:
    spec = as_dict(template.get("spec"))
    for container in _objects(spec.get("containers")):
        name = str(container.get("name") or "")
        yield from _container_fields(container, "" if name == main else name, mask)
    for container in _objects(spec.get("initContainers")):
        yield from _container_fields(container, f"init {container.get('name')}", mask)


def _container_fields(container: Json, name: str, mask: _Mask) -> Iterator[tuple[_Field, str]]:
    if container.get("image"):
        yield _Field(name, IMAGE), mask(str(container["image"]))
    for part, key in ((COMMAND, "command"), (ARGS, "args")):
        if words := container.get(key) if isinstance(container.get(key), list) else None:
            yield _Field(name, part), " ".join(_quoted(mask(str(word))) for word in words)
    for entry in _objects(container.get("env")):
        yield _Field(name, ENV, str(entry.get("name"))), mask(_env_value(entry))
    if sources := [_env_source(entry) for entry in _objects(container.get("envFrom"))]:
        yield _Field(name, ENV_FROM), ", ".join(sources)
    resources = as_dict(container.get("resources"))
    for part, key in ((REQUEST, "requests"), (LIMIT, "limits")):
        for resource, quantity in as_dict(resources.get(key)).items():
            yield _Field(name, part, resource), str(quantity)


_PLAIN_WORD = re.compile(r"[^\s\"'\\]+")


def _quoted(word: str) -> str:
    """A word of a command line in one line; in quotes if its ends could not be seen."""
    return word if _PLAIN_WORD.fullmatch(word) else json.dumps(word, ensure_ascii=False)


def _env_value(entry: Json) -> str:
    """The literal value of a variable, or where it comes from; of a Secret not even the name."""
    source = as_dict(entry.get("valueFrom"))
    if "secretKeyRef" in source:
        return "from a Secret"
    if reference := as_dict(source.get("configMapKeyRef")):
        return f"from ConfigMap {reference.get('name')}, {reference.get('key')}"
    if source:
        reference = next(map(as_dict, source.values()))
        return f"from {reference.get('fieldPath') or reference.get('resource')}"
    return str(entry.get("value") or "")


def _env_source(entry: Json) -> str:
    prefix = f" as {entry['prefix']}*" if entry.get("prefix") else ""
    if reference := as_dict(entry.get("configMapRef")):
        return f"ConfigMap {reference.get('name')}{prefix}"
    return f"a Secret{prefix}"


def _objects(value: Any) -> list[Json]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _union(names: Iterable[Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(name for run_names in names for name in run_names))


_Values = tuple[str | None, ...]


def _values(field: _Field, roles: tuple[str, ...], runs: list[_Run]) -> _Values:
    """The value of each run: in the first of these roles, or, without roles, in any of its own."""
    by_run = ([run.roles.get(roles[0], {})] if roles else list(run.roles.values()) for run in runs)
    return tuple(fields[0].get(field) if fields else None for fields in by_run)


def _differing_roles(field: _Field, runs: list[_Run]) -> list[tuple[str, ...]]:
    """The roles in which a field differs, those with the same values together; () stands for the whole job."""

    def differs(values: Iterable[str | None]) -> bool:
        return len(set(map(field.comparable, values))) > 1

    if not any(differs(fields.get(field) for fields in run.roles.values()) for run in runs):
        return [()] if differs(_values(field, (), runs)) else []
    roles_of: dict[_Values, list[str]] = {}
    for role in _union(run.roles for run in runs):
        if differs(run.roles[role].get(field) for run in runs if role in run.roles):
            roles_of.setdefault(_values(field, (role,), runs), []).append(role)
    return [tuple(roles) for roles in roles_of.values()]


def _excerpts(values: _Values) -> _Values:
    """The values; of long ones the part about their first difference."""
    texts = [value for value in values if value is not None]
    start = 0
    if max(map(len, texts)) > MAX_TEXT:
        columns = enumerate(zip(*texts, strict=False))
        common = next((at for at, letters in columns if len(set(letters)) > 1), min(map(len, texts)))
        start = max(0, common - CONTEXT)
    return tuple(None if value is None else _excerpt(value, start) for value in values)


def _excerpt(text: str, start: int) -> str:
    rest = text[start:]
    return f"{'… ' if start else ''}{rest[:MAX_TEXT]}{' …' if len(rest) > MAX_TEXT else ''}"
