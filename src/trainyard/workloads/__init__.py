"""The part of kube-controller-manager and kube-scheduler that a cluster on one machine needs: controllers of Job,
Deployment, ReplicaSet, StatefulSet, EndpointSlices and namespace defaults, the garbage collector, and pod scheduling.

Rules for this package:
- Each controller decides in one pure function `decide` in a file of its own: arguments are objects and the time `now`,
  the result is a `Decision` (writes and events). `controller_manager.py` calls it, and `decision_executor.py` sends the
  writes.
- The controllers behave as those of Kubernetes. Where they do less, the docstring of the file says so.
- None of this runs on a real cluster.
"""

from trainyard.workloads.controller_manager import ControllerManager

__all__ = ["ControllerManager"]
