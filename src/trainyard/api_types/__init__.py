"""The built-in types of the Kubernetes API: their schemas, decoding and names; defaults and rules of pods.

Rules for this package:
- The rules are those of kube-apiserver, with the first words of its messages: the embedded API server answers with
  them, and the commands that check manifests apply them to pod templates before a cluster is asked.
- A rule for one field needs the field's type: callers decode (decoding.py) and set defaults (pod_defaults.py) first.
"""
