"""TrainJobs are admitted and rendered as the recorded Trainer and JobSet have done it, object by object.

Inputs are those of the recordings: the job as its user wrote it, with the patches of later steps, and the runtime in
the recorded snapshot. Deliberate differences are in DIFFERENCES, each with a row of docs/compatibility.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from tests.drop_in.compare import covers, differences
from tests.drop_in.recordings import FOLDER, Recording, load
from tests.drop_in.scenario import merged
from tests.drop_in.scenarios_trainjob import TRAIN_JOBS
from tests.drop_in.snapshot import RUNTIME_SNAPSHOT, pod_spec
from trainyard.api_types.pod_defaults import default_pod_spec
from trainyard.core import violations
from trainyard.kinds.trainjob import admission
from trainyard.kinds.trainjob.definitions import RUNTIME_RULES, TRAIN_JOB_RULES, runtime_schema, train_job_schema
from trainyard.kinds.trainjob.expand import expand, pod
from trainyard.kinds.trainjob.mpi import HOSTFILE, hostfile_name
from trainyard.kinds.trainjob.render import Rendering, render
from trainyard.objects import Json, decode, encode
from trainyard.objects.quantities import canonical, is_quantity
from trainyard.schema import Schema

NAMES = sorted(path.stem for path in (FOLDER / TRAIN_JOBS).glob("*.json"))
RUNTIMES = sorted(path.stem for path in (FOLDER / "trainingruntime").glob("*.json"))
SECTIONS = {
    "scheduling.x-k8s.io/v1alpha1": "schedulerPluginsPodGroups",
    "scheduling.volcano.sh/v1beta1": "volcanoPodGroups",
}
PATTERN_OF_PODS = re.compile(r"-0-(\d+)-<random>")
JOB_KEY = "jobset.sigs.k8s.io/job-key"
OF_CONTROLLERS = ("controller-uid", "batch.kubernetes.io/controller-uid")
"""Labels of pods that name their Job, which ours do not have."""


@cache
def recording(name: str) -> Recording:
    return load(FOLDER / TRAIN_JOBS / f"{name}.json")


@cache
def schema(kind: str) -> Schema:
    return Schema(train_job_schema() if kind == "TrainJob" else runtime_schema())


@cache
def shipped_runtimes() -> dict[str, Json]:
    """By name: those of all recorded snapshots that are of no namespace."""
    runtimes = (runtime for name in NAMES if (runtime := recorded_runtime(recording(name))))
    return {runtime["metadata"]["name"]: runtime for runtime in runtimes if runtime["kind"].startswith("Cluster")}


def recorded_runtime(recorded: Recording) -> Json | None:
    """The runtime in the job's snapshot."""
    maps = recorded.steps[0].get("snapshot", {}).get("configMaps", {})
    return next((item["data"]["runtime"] for name, item in maps.items() if name.endswith(RUNTIME_SNAPSHOT)), None)


def runtime_of(recorded: Recording) -> Json | None:
    """The runtime that the job names, with the defaults of its definition."""
    reference = recorded.manifest["spec"]["runtimeRef"]
    own = {(item["kind"], item["metadata"]["name"]): item for item in recorded.objects}
    key = reference.get("kind", "ClusterTrainingRuntime"), reference["name"]
    if key in own:
        return schema("TrainingRuntime").default(own[key])
    return shipped_runtimes().get(reference["name"]) if key[0].startswith("Cluster") else None


def jobs_by_step(recorded: Recording) -> Iterator[tuple[int, Json, Json]]:
    """The number of each step, the job then, and what was recorded."""
    job = schema("TrainJob").default(recorded.manifest)
    for number, step in enumerate(recorded.steps):
        if "patch" in step["do"] and "refused" not in step:
            job = schema("TrainJob").default(merged(job, step["do"]["patch"]))
        if "snapshot" in step:
            yield number, job, step["snapshot"]


GIVEN = (("divisor", "0"), ("volumeMode", "Filesystem"), ("publishNotReadyAddresses", False))
"""Defaults of fields that only one side may write."""


def pruned(value: Any) -> Any:
    """Without empty maps and lists, and with quantities in canonical form: Go's types write both in other ways."""
    if isinstance(value, dict):
        parts = {key: pruned(part) for key, part in value.items()}
        return {key: part for key, part in parts.items() if part not in ({}, [], None) and (key, part) not in GIVEN}
    if isinstance(value, list):
        return [pruned(part) for part in value]
    return canonical(value) if isinstance(value, str) and is_quantity(value) else value


def our_pods(rendering: Rendering, job: Json, recorded_pods: Json) -> Json:
    """For each recorded pod ours with the same name."""
    by_name = {item["name"]: item for item in rendering.job_set["spec"]["replicatedJobs"]}
    pods = {}
    for name, recorded in recorded_pods.items():
        labels = recorded["metadata"]["labels"]
        replicated_job = labels["jobset.sigs.k8s.io/replicatedjob-name"]
        attempt = int(labels["jobset.sigs.k8s.io/restart-attempt"])
        index = PATTERN_OF_PODS.search(name)
        assert index is not None, name
        expansion = expand(rendering.job_set, "<uid>", "<namespace>", attempt)
        document = pod(rendering.job_set, by_name[replicated_job], expansion.pods[replicated_job], int(index[1]))
        default_pod_spec(document["spec"])
        pods[name] = {"metadata": document["metadata"], "spec": pod_spec(document["spec"])}
    return pods


def our_snapshot(job: Json, runtime: Json, recorded: Json) -> Json:
    rendering = render(job, runtime)
    expansion = expand(rendering.job_set, "<uid>", "<namespace>")
    name = job["metadata"]["name"]
    groups: Json = {SECTIONS[item["apiVersion"]]: {name: item} for item in rendering.pod_groups}
    maps = {hostfile_name(name): {"data": {HOSTFILE: rendering.hostfile}}} if rendering.hostfile else {}
    return {
        "jobSets": {name: rendering.job_set},
        "services": {expansion.service["metadata"]["name"]: expansion.service} if expansion.service else {},
        "persistentVolumeClaims": {item["metadata"]["name"]: item for item in expansion.claims},
        "configMaps": maps,
        "pods": our_pods(rendering, job, recorded.get("pods", {})),
        **groups,
    }


def comparable(content: Json) -> Json:
    """The sections that are compared, and of each object what a user or a controller has written."""
    sections: Json = {}
    for section in ("jobSets", "services", "persistentVolumeClaims", "configMaps", "pods", *SECTIONS.values()):
        for name, item in content.get(section, {}).items():
            if name.endswith(RUNTIME_SNAPSHOT):
                continue
            stored = item.get("metadata", {})
            metadata = {field: dict(stored.get(field) or {}) for field in ("labels", "annotations")}
            for values in metadata.values():
                if JOB_KEY in values:
                    values[JOB_KEY] = "<sha1>"
            for field in OF_CONTROLLERS if section == "pods" else ():
                metadata["labels"].pop(field, None)
            body = {key: item[key] for key in ("spec", "data") if key in item}
            if section == "volcanoPodGroups":
                body["spec"] = {"queue": "default", **body["spec"]}  # the default of the definition
            sections.setdefault(section, {})[name] = pruned({"metadata": metadata, **body})
    return sections


RENDERED = [name for name in NAMES if recorded_runtime(recording(name))]

VARIABLES = ("** .spec**containers[node].env**", "** .spec**containers[node].ports**")
"""Without `spec.trainer` Trainer sets no variables and opens no port (kubeflow/trainer#4076)."""
ADDRESS = ("** .spec**containers[node].env[PET_MASTER_ADDR].value**",)
DIFFERENCES: dict[str, tuple[str, ...]] = {
    # Trainer's port takes the place of any port without a name
    "torch-unnamed-port": ("** .spec**containers[node].ports**",),
    # Trainer's address is that of a replicated job `node` in the job's own subdomain, whatever the runtime has
    "torch-own-subdomain": ADDRESS,
    "torch-job-of-another-name": ADDRESS,
}
"""Scenario -> patterns of paths at which our objects are others."""


STEPS_COMPARED = {
    "patch-affinity-and-resume": 1,  # JobSet refuses the new affinity, and the job stays suspended
    "suspended-with-claims": 1,  # JobSet refuses any second version of a JobSet with claims: it stays suspended, too
    "suspended-after-its-end": 3,  # no object of a finished job is changed
    "trainer-added-later": 1,  # nor one of a job that runs
}
"""Scenario -> the number of steps in which its JobSet is that of the job as it is then."""


@pytest.mark.parametrize("name", RENDERED)
def test_jobs_are_rendered_as_recorded(name: str) -> None:
    recorded, runtime = recording(name), recorded_runtime(recording(name))
    assert runtime is not None
    listed = []
    for number, job, content in jobs_by_step(recorded):
        if not content.get("jobSets") or number >= STEPS_COMPARED.get(name, number + 1):
            continue
        ours = {"do": {}, "snapshot": comparable(our_snapshot(job, runtime, content))}
        theirs = {"do": {}, "snapshot": comparable(content)}
        accepted = [*DIFFERENCES.get(name, ()), *(() if "trainer" in job["spec"] else VARIABLES)]
        unstable = [path for path in recorded.unstable if path.startswith(f"step {number}: ")]
        for item in differences([theirs], [ours]):
            place = f"step {number}: {item.path}"
            if not any(covers(pattern, place) for pattern in (*accepted, *unstable)):
                listed.append(f"{place}: {item.recorded} != {item.ours}")
    assert listed == []


LEFT_TO_OTHERS = ("volcano-unknown-priority",)
"""Refusals that need another object than the runtime: Kubernetes refuses the pods."""
REFUSED = [name for name in NAMES if "refused" in recording(name).steps[0] and name not in LEFT_TO_OTHERS]
PROBLEM = re.compile(r"(?:^|\[|, )spec[.\[][^ ]*: (?:Invalid value|Forbidden)")


def our_refusals(recorded: Recording) -> list[str]:
    """What we refuse of a new job: by its definition, else by its runtime. Of what the schema refuses the path: its
    words are those of all definitions."""
    defaulted = schema("TrainJob").default(recorded.manifest)
    if invalid := schema("TrainJob").validate(defaulted):
        return [problem.path for problem in invalid]
    if broken := violations(TRAIN_JOB_RULES, defaulted, None):
        return [problem.text for problem in broken]
    if unsupported := admission.unsupported_runtime(defaulted["spec"]["runtimeRef"]):
        return [unsupported]
    runtime = runtime_of(recorded)
    if runtime is None:
        return [str(admission.missing_runtime(defaulted["spec"]["runtimeRef"]).text)]
    return [problem.text for problem in admission.refusals(defaulted, runtime)]


@pytest.mark.parametrize("name", REFUSED)
def test_jobs_are_refused_in_the_recorded_words(name: str) -> None:
    message = recording(name).steps[0]["refused"]["message"]
    texts = our_refusals(recording(name))
    assert texts
    assert [text for text in texts if text.removeprefix("Forbidden: ") not in message] == [], message
    if PROBLEM.search(message):
        assert len(texts) == len(PROBLEM.findall(message)), (texts, message)


UPDATES = [
    (name, number)
    for name in NAMES
    for number, step in enumerate(recording(name).steps)
    if number and "patch" in step["do"]
]


@pytest.mark.parametrize(("name", "number"), UPDATES)
def test_updates_are_admitted_as_recorded(name: str, number: int) -> None:
    recorded, step = recording(name), recording(name).steps[number]
    (old,) = (job for before, job, _ in jobs_by_step(recorded) if before == number - 1)
    new = schema("TrainJob").default(merged(old, step["do"]["patch"]))
    runtime = runtime_of(recorded)
    assert runtime is not None
    texts = [problem.text for problem in violations(TRAIN_JOB_RULES, new, old)]
    texts = texts or [problem.text for problem in admission.refusals(new, runtime, old)]
    message = (step.get("refused") or {}).get("message", "")
    assert bool(texts) == bool(message), (texts, message)
    assert [text for text in texts if text.removeprefix("Forbidden: ") not in message] == [], message


ACCEPTED = [name for name in NAMES if "refused" not in recording(name).steps[0]]
STRICTER = ("patch-unknown-job", "patch-env-of-x", "patch-env-of-unknown-init", "nodes-negative", "processes-zero")
"""Jobs that Trainer stores and cannot run; its next version refuses the numbers, too."""


@pytest.mark.parametrize("name", [name for name in ACCEPTED if name not in STRICTER])
def test_jobs_are_accepted_as_recorded(name: str) -> None:
    assert our_refusals(recording(name)) == []


@pytest.mark.parametrize("name", STRICTER)
def test_jobs_that_cannot_run_are_refused(name: str) -> None:
    assert our_refusals(recording(name))


@pytest.mark.parametrize("name", RUNTIMES)
def test_runtimes_are_admitted_as_recorded(name: str) -> None:
    recorded = load(FOLDER / "trainingruntime" / f"{name}.json")
    defaulted = schema("TrainingRuntime").default(recorded.manifest)
    texts = [problem.path for problem in schema("TrainingRuntime").validate(defaulted)]
    texts = texts or [problem.text for problem in violations(RUNTIME_RULES, defaulted, None)]
    texts = texts or [problem.text for problem in admission.runtime_refusals(defaulted)]
    message = (recorded.steps[0].get("refused") or {}).get("message", "")
    assert bool(texts) == bool(message), (texts, message)
    assert [text for text in texts if text not in message] == [], message


def test_inputs_are_not_changed() -> None:
    recorded = recording("mpi-three-nodes")
    job, runtime = schema("TrainJob").default(recorded.manifest), recorded_runtime(recorded)
    assert runtime is not None
    before = encode([job, runtime])
    render(job, runtime)
    assert [job, runtime] == decode(before)
