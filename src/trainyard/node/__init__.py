"""Pods become processes of this machine.

The room's idea: what a pod goes through is a table (`lifecycle`), what it needs is computed (`pods`, `volumes`,
`words`, `names`, `status`), and only two places touch the machine: `sandbox`, which talks to the helper program in
`hub`, and the network that was chosen. `running` carries out what the table says for one pod; `node` holds them all.

Rules:
- The node knows pods, nothing of the jobs behind them.
- No isolation is claimed: a pod is a process of the person who started it.
- When the runner dies, however it dies, nothing of a pod is left (see `hub`).
"""

from trainyard.node.hub.memory import mechanism as memory_limits
from trainyard.node.images import Images
from trainyard.node.node import LOG_SIZE, Node, NodeError

__all__ = ["LOG_SIZE", "Images", "Node", "NodeError", "memory_limits"]
