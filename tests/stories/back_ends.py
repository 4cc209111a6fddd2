"""What a story is told on: the cluster in this process, or a real control plane that our node has joined.

A back end runs the operator in this process either way. What makes pods, answers requests and places pods differs.
"""

from __future__ import annotations

import ssl
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest

from tests.stories.controlled_pods import PATIENCE
from trainyard.app.local import IN_PROCESS_URL, LocalCluster
from trainyard.client import ApiClient
from trainyard.client.transport import Transport
from trainyard.operator import Operator

REAL = pytest.param("real", marks=pytest.mark.cluster)
BOTH = ("embedded", REAL)
OWN = ("test_real_clock.py", "test_training_on_a_real_cluster.py")  # what is told on the real one alone


class Cluster(Protocol):
    """What a harness asks of its back end."""

    secure: ssl.SSLContext | None
    in_process: Callable[[], Transport] | None
    """Gives ways to an API server in this process; None where it has an address only."""
    home: str
    """The namespace of the story."""
    patience: float
    """How long anything may take that a story waits for."""

    @property
    def api(self) -> ApiClient: ...

    @property
    def url(self) -> str: ...

    @property
    def token(self) -> str: ...

    async def another(self, namespace: str) -> str:
        """Make another namespace for this story; its name, which is the given one where nobody else has it."""
        ...

    def requests(self) -> Counter[tuple[str, str]]:
        """The number of requests of the operator, the node and the story so far, by verb and resource."""
        ...

    async def start_operator(self, api: ApiClient | None = None) -> Operator: ...

    async def stop_operator(self) -> None: ...

    def resync(self) -> None:
        """Reconcile everything that uses the story's clock now."""
        ...

    def write_kubeconfig(self) -> Path: ...


class Embedded(LocalCluster):
    """All in this process; every controller uses the story's clock."""

    home = "default"
    patience = PATIENCE
    url = IN_PROCESS_URL
    secure = None  # a story starts up to fifty operators with a dozen connections each: TLS was half of its time

    @property
    def in_process(self) -> Callable[[], Transport]:
        return self.server.in_process

    async def another(self, namespace: str) -> str:
        await self.namespace(namespace)
        return namespace

    def requests(self) -> Counter[tuple[str, str]]:
        return Counter(self.server.verbs)
