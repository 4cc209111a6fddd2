"""What holds of the network of a pod on every node."""

from __future__ import annotations

POD_INTERFACE = "eth0"
"""The network interface of a pod with a network of its own: container runtimes name it so."""
