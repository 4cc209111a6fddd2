"""The controllers: watches fill stores, a work queue holds keys, reconcile sends the writes that `core.plan` decides.

Rules for this room:
- No policy here: `core` decides what to write. This package has the order of the writes and their error handling.
- One event loop, no threads, no polling. The process may be killed after any request without harm.
"""

from trainyard.control.loop import Controller, Latch, enqueue_object, enqueue_owner
from trainyard.control.operator import Operator
from trainyard.control.queue import WorkQueue
from trainyard.control.store import Change, Store
from trainyard.controller_runtime.view import ObjectAdapter, dict_adapter
from trainyard.controller_runtime.watch import Reflector, WatchTarget, step

__all__ = [
    "Change",
    "Controller",
    "Latch",
    "ObjectAdapter",
    "Operator",
    "Reflector",
    "Store",
    "WatchTarget",
    "WorkQueue",
    "dict_adapter",
    "enqueue_object",
    "enqueue_owner",
    "step",
]
