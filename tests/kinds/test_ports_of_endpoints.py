"""The port of an address is one that a machine can have."""

from __future__ import annotations

import pytest

from trainyard.kinds.elasticjob.spec import is_endpoint


@pytest.mark.parametrize("text", ["etcd", "etcd:1", "etcd:2379", "10.0.0.1:65535", "[::1]:60000", "a.b.svc:59999"])
def test_an_address_with_a_port_that_a_machine_can_have_is_one(text: str) -> None:
    assert is_endpoint(text)


@pytest.mark.parametrize("text", ["etcd:0", "etcd:65536", "etcd:99999", "etcd:02379", "etcd:", "[::1]:70000"])
def test_an_address_with_another_port_is_none(text: str) -> None:
    assert not is_endpoint(text)
