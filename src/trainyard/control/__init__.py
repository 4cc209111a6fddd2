"""The controllers: watches fill stores, a work queue holds keys, reconcile sends the writes that `core.plan` decides.

Rules for this room:
- No policy here: `core` decides what to write. This package has the order of the writes and their error handling.
- One event loop, no threads, no polling. The process may be killed after any request without harm.
"""

from trainyard.control.loop import Loop, Once, itself, owned_by
from trainyard.control.operator import Operator
from trainyard.control.queue import Queue
from trainyard.control.store import Change, Store
from trainyard.controller_runtime.view import View, plain
from trainyard.controller_runtime.watch import Feed, Source, step

__all__ = [
    "Change",
    "Feed",
    "Loop",
    "Once",
    "Operator",
    "Queue",
    "Source",
    "Store",
    "View",
    "itself",
    "owned_by",
    "plain",
    "step",
]
