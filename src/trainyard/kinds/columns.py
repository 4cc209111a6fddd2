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
"""Why the job has failed."""
BLOCKED = {
    "name": "Blocked",
    "type": "string",
    "jsonPath": '.status.conditions[?(@.type=="Blocked")].message',
    "priority": 1,
}
"""Who refuses which child; empty as soon as nobody does."""
