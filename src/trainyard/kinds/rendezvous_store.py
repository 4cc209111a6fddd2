"""The store of torchrun's rendezvous, for the kinds whose workers come and go."""

from __future__ import annotations

from trainyard.kinds.pods.templates import append_to_list, names_of_variables
from trainyard.objects import Json

VARIABLE: Json = {"name": "TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "value": "1"}
"""Each rendezvous has a store of its own.

Without it all have one in torch 2.15, whose address is published in the first rendezvous only: an agent that joins
later, or is started again, waits for it in vain, and the others wait for the agent. An older torch ignores it.
"""
BACKENDS = ("c10d", "etcd-v2")
"""The values of rdzvBackend that share a store. `etcd` has its own, and `static` has no second rendezvous."""


def give_each_rendezvous_a_store(container: Json, backend: str) -> None:
    """Append the variable to the container's, unless the template has it."""
    if backend in BACKENDS and VARIABLE["name"] not in names_of_variables(container):
        append_to_list(container, "env", dict(VARIABLE))
