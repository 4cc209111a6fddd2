"""Pods become processes of this machine.

Structure: the lifecycle of a pod is a transition table (`lifecycle`); its inputs are computed by pure modules (`pods`,
`volumes`, `words`, `names`, `status`); only two parts start processes or open ports: `sandbox`, the client of the
helper program in `hub`, and the network. `running` performs the lifecycle's actions for one pod; `node` has one worker
per pod.

Rules:
- The node knows pods, not the jobs that own them.
- No isolation is promised: a pod is a process of the user who started the runner.
- When the runner ends, in whatever way, all processes of its pods end (see `hub`).
"""

from trainyard.node.hub.memory import mechanism as memory_limits
from trainyard.node.images import Images
from trainyard.node.node import LOG_SIZE, Node, NodeError

__all__ = ["LOG_SIZE", "Images", "Node", "NodeError", "memory_limits"]
