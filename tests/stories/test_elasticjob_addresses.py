"""Where the workers of an ElasticJob find their rendezvous and each other, in both networks."""

from __future__ import annotations

import pytest

from tests.stories.harness import SERVICE, ControlledPod, Harness
from tests.stories.job_fixtures import PLAYS, argument

ELASTIC = PLAYS["ElasticJob"]


async def etcd(harness: Harness) -> tuple[ControlledPod, str, str]:
    """Somebody who listens where etcd would, the namespace of their own, and the Service's address."""
    namespace = await harness.another("elastic-job")
    ports = [{"name": "client-port", "port": 2379, "protocol": "TCP", "targetPort": 2379}]
    spec = {"ports": ports, "selector": {"app": "etcd"}}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "etcd-service"}, "spec": spec}
    created = await harness.api.create(SERVICE, namespace, service)
    listens = {"args": ["0.0.0.0:2379"], "ports": [{"containerPort": 2379}]}
    server = await harness.visitor(namespace, {"app": "etcd"}, **listens)
    where = "(lambda host, port: (host, int(port)))(*sys.argv[-1].split(':'))"
    await server.ask(f"globals().__setitem__('door', socket.create_server({where}))")
    return server, namespace, created["spec"]["clusterIP"]


async def reaches(controlled_pod: ControlledPod, other: ControlledPod, address: str) -> bool:
    """Whether a word gets from the one to the other; the address is an expression of the one's."""
    text = f"(lambda host, port: (host, int(port)))(*({address}).split(':'))"
    await controlled_pod.ask(f"socket.create_connection({text}, 5).sendall(b'hello')")
    return bool(await other.ask("door.accept()[0].recv(5).decode()") == "hello")


@pytest.mark.slow
@pytest.mark.parametrize("network", ["shared", "namespace"])
@pytest.mark.parametrize("named", ["by name", "by address"])
async def test_the_rendezvous_in_another_namespace_is_reached(harness: Harness, network: str, named: str) -> None:
    server, namespace, address = await etcd(harness)
    host = address if named == "by address" else f"etcd-service.{namespace}"
    await ELASTIC.begin(harness, rdzvEndpoint=f"{host}:2379")
    for index in (0, 1):
        assert await reaches(await harness.controlled_pod("worker", index), server, argument("rdzv_endpoint"))


class TestInItsNetwork:
    @pytest.fixture
    def network(self) -> str:
        return "namespace"

    async def test_workers_and_services_are_found_by_all_their_names(self, harness: Harness) -> None:
        server, there, _ = await etcd(harness)
        here = harness.namespace
        await ELASTIC.begin(harness)
        first, other = await harness.controlled_pod("worker", 0), await harness.controlled_pod("worker", 1)
        await other.ask("globals().__setitem__('door', socket.create_server(('', 29500)))")
        for name in ("story-worker-1", f"story-worker-1.{here}", f"story-worker-1.{here}.svc.cluster.local"):
            assert await reaches(first, other, f"'{name}:29500'")
        for name in (f"etcd-service.{there}", f"etcd-service.{there}.svc.cluster.local"):
            assert await reaches(first, server, f"'{name}:2379'")
        assert await first.ask("socket.gethostname()") == "story-worker-0"
        await harness.edit({"replicaSpecs": {"Worker": {"replicas": 3}}})
        third = await harness.controlled_pod("worker", 2)
        await third.ask("globals().__setitem__('door', socket.create_server(('', 29500)))")
        assert await reaches(first, third, "'story-worker-2:29500'")
