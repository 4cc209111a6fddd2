"""Trainyard trains distributed jobs: the same YAML as processes on one machine and as pods on Kubernetes."""

__version__ = "0.1.0"
