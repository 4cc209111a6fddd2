"""What every controller stands on: watches that are reopened with back-off, and long-lived tasks that have an owner.

Rules for this room:
- It knows no training: only `client`, `objects` and what is below them are imported.
- No long-lived task is started with `asyncio.create_task`: `TaskSupervisor.start` gives it a name and an owner.
"""

from trainyard.controller_runtime.backoff import Backoff, StreamBackoff, pause_after
from trainyard.controller_runtime.reflector import Reflector, WatchTarget
from trainyard.controller_runtime.tasks import TaskSupervisor

__all__ = ["Backoff", "Reflector", "StreamBackoff", "TaskSupervisor", "WatchTarget", "pause_after"]
