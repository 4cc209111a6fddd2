"""The flags with which the programs of the control plane serve gangs, by program (Kubernetes 1.37).

The scheduler's gate of topology changes what it says of every group ("0/1 placements are available, ..."), so it is on
where a test is about topology only; the API server drops nothing with it."""

from __future__ import annotations

GATE = "--feature-gates=GenericWorkload=true"
TOPOLOGY = "--feature-gates=GenericWorkload=true,TopologyAwareWorkloadScheduling=true"
SERVED = "--runtime-config=scheduling.k8s.io/v1beta1=true"
GATES = {"kube-apiserver": [TOPOLOGY, SERVED], "kube-controller-manager": [GATE], "kube-scheduler": [GATE]}
TOPOLOGY_GATES = {**GATES, "kube-scheduler": [TOPOLOGY]}
