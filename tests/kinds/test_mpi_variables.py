"""The variables of today's MPIs in the pod that runs mpiexec. The golden files of the kinds have them all."""

from __future__ import annotations

import pytest

from tests.model.simulated_job import simulate
from tests.support.samples import chainerjob, kubeflow_job, pods, worker_set
from trainyard.kinds import CHAINERJOB, MPIJOB
from trainyard.objects import Json


def variables(kind: str, env: Json, **pod_spec: object) -> Json:
    """The variables of the pod that runs mpiexec. `env` and `pod_spec` are of its template."""
    template = pods("chainer" if kind == "ChainerJob" else "mpi")
    template["spec"].update(pod_spec)
    template["spec"]["containers"][0]["env"] = [{"name": name, "value": value} for name, value in env.items()]
    if kind == "ChainerJob":
        job = chainerjob({"ws0": worker_set(2, mpiConfig={"slots": 4})}, master={"template": template})
        pod = simulate(CHAINERJOB, job).get("Job", "example-master")["spec"]["template"]
    else:
        job = kubeflow_job("MPIJob")
        job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"] = template
        pod = simulate(MPIJOB, job).get("Pod", "example-launcher")
    container: Json = pod["spec"]["containers"][0]
    names = [variable["name"] for variable in container["env"]]
    assert len(set(names)) == len(names)
    return {variable["name"]: variable.get("value") for variable in container["env"]}


KINDS = pytest.mark.parametrize("kind", ["MPIJob", "ChainerJob"])


@KINDS
def test_values_of_the_template_stay(kind: str) -> None:
    own = {"HYDRA_IFACE": "ib0", "I_MPI_PERHOST": "8", "CHAINERMN_FORCE_ABORT_ON_EXCEPTION": ""}
    assert own.items() <= variables(kind, own).items()


@KINDS
def test_a_pod_with_the_network_of_its_host_has_interfaces_of_other_names(kind: str) -> None:
    names = {"HYDRA_IFACE", "I_MPI_HYDRA_IFACE"}
    assert {variables(kind, {})[name] for name in names} == {"eth0"}
    assert not names & variables(kind, {}, hostNetwork=True).keys()


def test_intel_mpi_gets_the_least_slots_of_a_pod() -> None:
    assert variables("ChainerJob", {})["I_MPI_PERHOST"] == "1"


def test_an_exception_in_a_rank_of_chainermn_ends_all() -> None:
    assert variables("ChainerJob", {})["CHAINERMN_FORCE_ABORT_ON_EXCEPTION"] == "1"
