"""The variables of pods in the network shared."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard.node.network import shared
from trainyard.node.network.directory import Directory
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
