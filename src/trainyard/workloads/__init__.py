"""The controllers that a bare API server lacks: batch Job, Deployment, StatefulSet, endpoints of Services, what every
namespace has, owner garbage collection, placement of pods.

Rules for this room:
- Each decision is one pure function in its own file: objects in, writes out, `now` an argument. `shell.py` obeys.
- What Kubernetes' own controllers do is the law; where we do less, the file's docstring says so.
- On a real cluster none of this runs.
"""

from trainyard.workloads.shell import Workloads

__all__ = ["Workloads"]
