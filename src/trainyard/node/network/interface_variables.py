"""Variables that name the network interface of a pod. On the network *shared* a pod has none of its own. Pure.

Without them libraries use the interface to which the host name resolves. With the name of one that is missing MPICH,
Intel MPI, gloo and NCCL end with an error."""

from __future__ import annotations

from collections.abc import Mapping

from trainyard.objects.pod_network import POD_INTERFACE

_VARIABLES = ("HYDRA_IFACE", "I_MPI_HYDRA_IFACE", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")


def left_out(env: Mapping[str, str]) -> str:
    """The line about NCCL's variable, where it names the interface of a pod; "" where it does not. The others are set
    by Trainyard itself."""
    name = "NCCL_SOCKET_IFNAME"
    if env.get(name) != POD_INTERFACE:
        return ""
    return f"node: {name}={POD_INTERFACE} is left out: pods on the network shared have the interfaces of the machine"


def without_pod_interface(env: Mapping[str, str]) -> dict[str, str]:
    """The environment without variables that name the interface of a pod."""
    return {name: value for name, value in env.items() if name not in _VARIABLES or value != POD_INTERFACE}
