"""Where the workers of an ElasticJob find their rendezvous and each other, in both networks."""

from __future__ import annotations

import pytest

from tests.stories.harness import SERVICE, Actor, Stage
from tests.stories.job_fixtures import PLAYS, argument

ELASTIC = PLAYS["ElasticJob"]


async def etcd(stage: Stage) -> tuple[Actor, str, str]:
    """Somebody who listens where etcd would, the namespace of their own, and the Service's address."""
    namespace = await stage.another("elastic-job")
    ports = [{"name": "client-port", "port": 2379, "protocol": "TCP", "targetPort": 2379}]
    spec = {"ports": ports, "selector": {"app": "etcd"}}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "etcd-service"}, "spec": spec}
    made = await stage.api.create(SERVICE, namespace, service)
    listens = {"args": ["0.0.0.0:2379"], "ports": [{"containerPort": 2379}]}
    server = await stage.visitor(namespace, {"app": "etcd"}, **listens)
    where = "(lambda host, port: (host, int(port)))(*sys.argv[-1].split(':'))"
    await server.ask(f"globals().__setitem__('door', socket.create_server({where}))")
    return server, namespace, made["spec"]["clusterIP"]


async def reaches(one: Actor, other: Actor, address: str) -> bool:
    """Whether a word gets from the one to the other; the address is an expression of the one's."""
    text = f"(lambda host, port: (host, int(port)))(*({address}).split(':'))"
    await one.ask(f"socket.create_connection({text}, 5).sendall(b'hello')")
    return bool(await other.ask("door.accept()[0].recv(5).decode()") == "hello")


@pytest.mark.slow
@pytest.mark.parametrize("network", ["shared", "namespace"])
@pytest.mark.parametrize("named", ["by name", "by address"])
async def test_the_rendezvous_in_another_namespace_is_reached(stage: Stage, network: str, named: str) -> None:
    server, namespace, address = await etcd(stage)
    host = address if named == "by address" else f"etcd-service.{namespace}"
    await ELASTIC.begin(stage, rdzvEndpoint=f"{host}:2379")
    for index in (0, 1):
        assert await reaches(await stage.actor("worker", index), server, argument("rdzv_endpoint"))


class TestInItsNetwork:
    @pytest.fixture
    def network(self) -> str:
        return "namespace"

    async def test_workers_and_services_are_found_by_all_their_names(self, stage: Stage) -> None:
        server, there, _ = await etcd(stage)
        here = stage.namespace
        await ELASTIC.begin(stage)
        one, other = await stage.actor("worker", 0), await stage.actor("worker", 1)
        await other.ask("globals().__setitem__('door', socket.create_server(('', 29500)))")
        for name in ("story-worker-1", f"story-worker-1.{here}", f"story-worker-1.{here}.svc.cluster.local"):
            assert await reaches(one, other, f"'{name}:29500'")
        for name in (f"etcd-service.{there}", f"etcd-service.{there}.svc.cluster.local"):
            assert await reaches(one, server, f"'{name}:2379'")
        assert await one.ask("socket.gethostname()") == "story-worker-0"
        await stage.edit({"replicaSpecs": {"Worker": {"replicas": 3}}})
        third = await stage.actor("worker", 2)
        await third.ask("globals().__setitem__('door', socket.create_server(('', 29500)))")
        assert await reaches(one, third, "'story-worker-2:29500'")
