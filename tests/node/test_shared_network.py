"""The variables of pods in the network shared."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from trainyard.node.network import shared
from trainyard.node.network.directory import Directory, peer_of
from trainyard.objects import Json

AGENT = {"name": "OMPI_MCA_plm_rsh_agent", "value": "agent"}
EXCLUDES = {"name": "OMPI_MCA_btl_tcp_if_exclude", "value": "lo,docker0"}
OFF = {"OMPI_MCA_btl": "self,tcp", "OMPI_MCA_coll": "^han"}
LOOPBACK = {"OMPI_MCA_btl_tcp_if_include": "lo"}


@pytest.mark.parametrize(
    ("env", "is_online", "variables"),
    [
        ([], True, {}),
        ([{"name": "OMPI_MCA_rmaps_base_oversubscribe", "value": "1"}], True, {}),
        ([AGENT], True, OFF),
        ([AGENT, EXCLUDES], True, OFF),
        ([AGENT], False, {**OFF, **LOOPBACK}),
        ([AGENT, EXCLUDES], False, {}),
    ],
)
def test_a_launcher_that_reaches_other_pods_uses_no_shared_memory(
    env: list[Json], is_online: bool, variables: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = "10.1.2.3" if is_online else shared._DOCUMENTATION_ADDRESS
    monkeypatch.setattr(shared, "host_address", lambda: address)
    sandbox: Any = None
    network = shared.SharedNetwork(sandbox, Directory(), print)
    pod = {"spec": {"containers": [{"name": "mpi", "env": env}, {"name": "sidecar"}]}}
    given = network.environment(pod)
    assert {name: value for name, value in given.items() if name.startswith("OMPI_")} == variables


async def test_the_service_of_a_replica_that_has_ended_is_not_forwarded() -> None:
    """Its port may still be in use, by connections of its server: those of XGBoost's tracker last a minute."""
    messages: list[str] = []
    sandbox: Any = None
    network = shared.SharedNetwork(sandbox, Directory(), lambda text: messages.append(str(text)))
    spec = {"clusterIP": "None", "selector": {"job": "xg"}, "ports": [{"port": 9091, "targetPort": 9091}]}
    network.directory.set_service({"metadata": {"name": "xg-master-0", "namespace": "default"}, "spec": spec})
    meta = {"name": "xg-master-0", "namespace": "default", "uid": "u", "labels": {"job": "xg"}}
    network.directory.peers["u"] = peer_of({"metadata": meta, "spec": {}}, "192.0.2.1", ready=True)
    await network.services_changed()
    with socket.socket() as server:
        server.bind(("", network.ports.allocate("default", "xg-master-0", 9091, "u")))
        server.listen()
        del network.directory.peers["u"]
        await network.services_changed()
    assert messages == [] and not network._forwarders
    await network.stop()
