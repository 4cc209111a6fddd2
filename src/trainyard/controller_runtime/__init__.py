"""The runtime of all controllers: reflectors, stores, work queues, back-off, leader election, supervised asyncio tasks.

Rules for this package:
- Nothing here is about training jobs: of this project only `client`, `objects` and the packages below them are imported.
- A long-lived task is started with `TaskSupervisor.start`, which names it and restarts it, not with
  `asyncio.create_task`.
"""

from trainyard.controller_runtime.backoff import Backoff, WatchBackoff, backoff_delay
from trainyard.controller_runtime.reflector import Reflector, WatchTarget
from trainyard.controller_runtime.tasks import TaskSupervisor

__all__ = ["Backoff", "Reflector", "TaskSupervisor", "WatchBackoff", "WatchTarget", "backoff_delay"]
