"""Columns that `kubectl get` prints, the same for every kind; those with a priority are for `-o wide`."""

from __future__ import annotations

STATE = {"name": "State", "type": "string", "jsonPath": ".status.state"}
READY = {"name": "Ready", "type": "string", "jsonPath": ".status.ready"}
RESTARTS = {"name": "Restarts", "type": "integer", "jsonPath": ".status.restarts"}
AGE = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
REASON = {
    "name": "Reason",
    "type": "string",
    "jsonPath": '.status.conditions[?(@.type=="Failed")].message',
    "priority": 1,
}
"""Why the job has failed. Its other troubles are conditions, too, but a column shows one."""
