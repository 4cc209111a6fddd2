"""The probes of containers: when they are due and what their results mean (schedule), how they are run (handlers)."""
