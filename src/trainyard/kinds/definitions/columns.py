"""additionalPrinterColumns of the CRDs, shared by all kinds; `kubectl get` prints priority 1 with `-o wide` only."""

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
"""The message of the condition Failed."""
BLOCKED = {
    "name": "Blocked",
    "type": "string",
    "jsonPath": '.status.conditions[?(@.type=="Blocked")].message',
    "priority": 1,
}
"""The message of the condition Blocked, which has the rejected child and the reason; empty when none is rejected."""
