"""The spec of a pod, read: environment, command lines, references. Pure."""
