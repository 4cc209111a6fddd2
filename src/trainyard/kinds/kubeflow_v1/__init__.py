"""The kinds of the Kubeflow Training Operator, `kubeflow.org/v1`: the same manifests, children and statuses.

`framework.py` says in what these kinds differ, `job.py` builds a Kind from that; `spec.py`, `pods.py`, `lifecycle.py`,
`conditions.py` and `messages.py` are the parts that all of them share. One module for each kind.
The behaviour is that of version 1.9.4; docs/compatibility.md lists every difference.
"""
