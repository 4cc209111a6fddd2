"""The store of torchrun's rendezvous, for the kinds whose workers come and go."""

from __future__ import annotations

import re

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


SETTINGS = "PET_RDZV_CONF"
"""The variable from which torchrun reads the settings of its rendezvous."""
_OWN_RENDEZVOUS = re.compile(r"rdzv[_-](?:endpoint|conf)")


def name_host_of_store(container: Json, settings: str, is_host: bool) -> None:
    """Append to `settings`, those of the job, whether the container's agent hosts the c10d store.

    torch compares names and addresses otherwise, which all pods in the network of a machine share: the first agent that
    binds the port is the host, and its end is the end of the store. A container that chooses a host by itself is left
    as it is: by its variables, or by its command, whose endpoint may be another replica.
    """
    command = f"{container.get('command')} {container.get('args')}"
    is_own = SETTINGS in names_of_variables(container) and not settings
    if is_own or "is_host=" in settings or _OWN_RENDEZVOUS.search(command):
        return
    variable = {"name": SETTINGS, "value": ",".join(filter(None, (settings, f"is_host={int(is_host)}")))}
    if settings and isinstance(container.get("env"), list):
        before = {"name": SETTINGS, "value": settings}
        container["env"] = [variable if item == before else item for item in container["env"]]
    else:
        append_to_list(container, "env", variable)
