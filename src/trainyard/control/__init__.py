"""The thin shell: it sees (watch, store), waits (queue), and obeys what `core.plan` decides (reconcile, operator).

Rules for this room:
- It has no opinions: what should be written is decided in `core`. Here live only the order of the writes and what to do
  when one fails.
- One event loop, no threads, no polling. Being killed after any request is harmless.
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
