"""Requests that the API server forwards: to kubelets (logs, exec, attach) and to programs in pods (proxy)."""
