"""A replica's Service has each number and protocol once: an API server refuses another one, and with it the job."""

from __future__ import annotations

import copy

import pytest

from tests.model.simulated_job import SimulatedJob
from tests.support.samples import sample
from trainyard import kinds
from trainyard.core import Kind
from trainyard.kinds.pods.templates import containers_of
from trainyard.objects import Json, templates_of

OWN = (
    (kinds.KUBEFLOW_TFJOB, "tfjob-port", 2222),
    (kinds.PYTORCHJOB, "pytorchjob-port", 23456),
    (kinds.XGBOOSTJOB, "xgboostjob-port", 9999),
    (kinds.PADDLEJOB, "master", 36543),
    (kinds.JAXJOB, "jaxjob-port", 6666),
)
OTHER, UDP = {"name": "mine", "containerPort": 0}, {"name": "udp", "containerPort": 0, "protocol": "UDP"}
OF_SERVICE, UDP_OF_SERVICE = {"name": "mine", "port": 0}, {"name": "udp", "port": 0, "protocol": "UDP"}
ADDED, ADDED_TO_SERVICE = {"name": "own", "containerPort": 0}, {"name": "own", "port": 0}
UNNAMED = {"containerPort": 0}
CASES: dict[str, tuple[list[Json], list[Json], list[Json]]] = {
    # ports of the template, of the pods and of the Services; the number 0 and the name `own` stand for the kind's own
    "none": ([], [ADDED], [ADDED_TO_SERVICE]),
    "the kind's": ([ADDED], [ADDED], [ADDED_TO_SERVICE]),
    "its number without a name": ([UNNAMED], [UNNAMED, ADDED], [ADDED_TO_SERVICE]),
    "its number under another name": ([OTHER], [OTHER], [OF_SERVICE]),
    "its number as UDP": ([UDP], [UDP, ADDED], [UDP_OF_SERVICE, ADDED_TO_SERVICE]),
    "its number as both": ([UDP, OTHER], [UDP, OTHER], [UDP_OF_SERVICE, OF_SERVICE]),
    "its number under two names": ([OTHER, {**OTHER, "name": "b"}], [OTHER, {**OTHER, "name": "b"}], [OF_SERVICE]),
}


def own(ports: list[Json], name: str, number: int) -> list[Json]:
    """The ports with the name and number of the kind's own."""
    values = {0: number, "own": name}
    return [{field: values.get(value, value) for field, value in port.items()} for port in ports]


@pytest.mark.parametrize(("kind", "name", "number"), OWN, ids=[name for _, name, _ in OWN])
@pytest.mark.parametrize(("ports", "of_pods", "of_services"), CASES.values(), ids=CASES)
def test_a_service_has_each_port_once(
    kind: Kind, name: str, number: int, ports: list[Json], of_pods: list[Json], of_services: list[Json]
) -> None:
    job = copy.deepcopy(sample(kind.gvk.kind))
    for _, template in templates_of(job["spec"], "spec"):
        containers_of(template)[0]["ports"] = own(ports, name, number)
    simulated = SimulatedJob(kind, {**job, "status": {}})
    simulated.settle()
    pod = simulated.get("Pod", simulated.names("Pod")[0])
    service = simulated.get("Service", simulated.names("Service")[0])
    assert pod["spec"]["containers"][0]["ports"] == own(of_pods, name, number)
    assert service["spec"]["ports"] == own(of_services, name, number)
