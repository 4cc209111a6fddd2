"""ChainerJob to MPIJob: both start processes in the workers by `exec`; the launcher of an MPIJob is no worker."""

from __future__ import annotations

from trainyard.conversion.differences import differing_paths
from trainyard.conversion.fields import Fields, take_metadata
from trainyard.conversion.kubeflow.run_policy import take_run_policy, with_run_policy
from trainyard.conversion.programs import runs_mpi_launcher
from trainyard.conversion.template_edits import main_container, take_restart_policy, with_main_container
from trainyard.kinds.chainerjob.kind import slots_of
from trainyard.kinds.chainerjob.spec import CONTAINER
from trainyard.objects import Json

MAIN = "mpi"
NO_LIMIT = "an MPIJob has one slotsPerWorker for all workers; give every worker as many slots"


def convert(source: Fields) -> Json:
    """The MPIJob of a ChainerJob."""
    metadata = take_metadata(source)
    spec = source.child("spec")
    spec.take("backend")  # mpi, the only one
    master = spec.child("master")
    policies = take_run_policy(spec)
    policies |= master.take_known(("activeDeadlineSeconds", "backoffLimit"))
    slots = _slots(master)
    launcher = with_main_container(master.take("template"), CONTAINER, MAIN)
    restart_policy = take_restart_policy(launcher)
    sets = spec.child("workerSets")
    workers = [sets.child(name) for name in sorted(sets.names)]
    replica_specs: Json = {
        "Launcher": {
            "replicas": 1,
            "restartPolicy": "Never" if restart_policy == "Never" else "OnFailure",
            "template": launcher,
        }
    }
    if workers:
        replica_specs["Worker"], slots = _worker(workers, slots)
    elif runs_mpi_launcher(main_container(launcher, MAIN)):
        replica_specs["Worker"] = {"replicas": 1, "restartPolicy": "OnFailure", "template": _worker_template(launcher)}
    if "Worker" in replica_specs:
        source.note(
            "spec.master",
            "a master runs processes, the Launcher of an MPIJob none: Worker has one replica more in its place",
        )
    new_spec = {"slotsPerWorker": slots, "mpiReplicaSpecs": replica_specs}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "MPIJob",
        "metadata": metadata,
        "spec": with_run_policy(new_spec, policies),
    }


def _worker(workers: list[Fields], master_slots: int) -> tuple[Json, int]:
    """The replica set Worker, for all worker sets and the master, and the slots of each worker."""
    first, *others = workers
    slots, replicas = _slots(first), 1 + first.take("replicas", 1)
    template = _template_of(first)
    if master_slots != slots:
        first.report_unmapped("mpiConfig.slots", f"the master has {master_slots}, these workers {slots}: {NO_LIMIT}")
    for other in others:
        other_slots = _slots(other)
        replicas += other.take("replicas", 1)
        if other_slots != slots:
            other.report_unmapped("mpiConfig.slots", f"{other_slots}, and {slots} in another set: {NO_LIMIT}")
        for path in differing_paths(_template_of(other), template):
            text = f"differs from {first.path}, whose template all workers of an MPIJob have; make the sets equal"
            other.report_unmapped(f"template.{path}", text)
    return {"replicas": replicas, "restartPolicy": "OnFailure", "template": template}, slots


def _template_of(worker_set: Fields) -> Json:
    template = with_main_container(worker_set.take("template"), CONTAINER, MAIN)
    take_restart_policy(template)
    return template


def _worker_template(launcher: Json) -> Json:
    """The template of a worker beside a master that had no worker sets: the launcher's, which waits to be used."""
    template = with_main_container(launcher, MAIN, MAIN)
    container = main_container(template, MAIN)
    container.pop("args", None)
    container["command"] = ["sleep", "365d"]
    return template


def _slots(source: Fields) -> int:
    """The slots of each pod of a master or worker set whose template is not yet taken."""
    config = source.child("mpiConfig").take_known(("slots",))
    return slots_of({"mpiConfig": config, "template": source.peek("template")})
