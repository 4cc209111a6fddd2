"""A supervisor of the long-lived asyncio tasks of a component: it restarts each task that ends.

    tasks = TaskSupervisor("node", report)
    tasks.start("watch pods", reflector.run); ...; await tasks.stop()

Rules for this file:
- A long-lived task must not return. If it returns, raises, or is cancelled other than by the supervisor, the supervisor
  logs the traceback, reports one message, and restarts it after a back-off, without limit, as restartPolicy Always
  does.
- `failing` has the message of a task while it waits for its restart, and after UNHEALTHY_FAILURES consecutive ends
  until it has run for HEALTHY_SECONDS. A Node is NotReady then; an operator fails /readyz, and /healthz if unhealthy.
- `spawn` runs a background task that ends by itself: its exception is logged and reported and affects no other task.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

import msgspec

from trainyard.controller_runtime.backoff import Backoff

log = logging.getLogger(__name__)

INITIAL_RESTART_DELAY, MAX_RESTART_DELAY = 0.25, 30.0  # seconds before a restart
HEALTHY_SECONDS = 60.0  # a restarted task that has run for so long is healthy again
UNHEALTHY_FAILURES = 3  # consecutive ends after which a task is unhealthy: restarts do not repair it

TaskFunction = Callable[[], Coroutine[Any, Any, None]]


class _SupervisedTask(msgspec.Struct):
    run: TaskFunction
    backoff: Backoff
    task: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None  # calls `_start_task` while the task is down, else `_mark_healthy`
    error: str = ""  # the message about its last end, "" while it is healthy

    @property
    def unhealthy(self) -> bool:
        return self.error != "" and self.backoff.failures >= UNHEALTHY_FAILURES


class TaskSupervisor:
    """Runs the long-lived tasks of one component. `report` is called with each message, which begins with `component`;
    with None, messages are only logged. `on_change` is called when `failing` has changed."""

    def __init__(
        self,
        component: str,
        report: Callable[[str], object] | None = None,
        on_change: Callable[[], object] = lambda: None,
    ) -> None:
        self._component, self._report, self._on_change = component, report, on_change
        self._tasks: dict[str, _SupervisedTask] = {}
        self._background: set[asyncio.Task[Any]] = set()  # tasks of `spawn`, and cancelled tasks that have not ended

    @property
    def names(self) -> list[str]:
        """The names of all long-lived tasks, including those that wait for a restart."""
        return list(self._tasks)

    @property
    def failing(self) -> str:
        """The messages about the tasks that are down or unhealthy, joined by "; "; "" when there is none."""
        down = [task.error for task in self._tasks.values() if task.error and (task.task is None or task.unhealthy)]
        return "; ".join(down)

    @property
    def unhealthy(self) -> str:
        """The messages about the unhealthy tasks (UNHEALTHY_FAILURES), joined by "; "; "" when there is none."""
        return "; ".join(task.error for task in self._tasks.values() if task.unhealthy)

    def task(self, name: str) -> asyncio.Task[None] | None:
        """The task of this name, None while it waits for its restart. Raises KeyError for an unknown name."""
        return self._tasks[name].task

    def start(self, name: str, run: TaskFunction) -> None:
        """Start a long-lived task that runs `run()` and is restarted when it ends. If the name is in use, a number is
        appended: a resource may be watched in two namespaces."""
        if name in self._tasks:
            name = next(unused for number in count(2) if (unused := f"{name} ({number})") not in self._tasks)
        self._tasks[name] = _SupervisedTask(run, Backoff(INITIAL_RESTART_DELAY, MAX_RESTART_DELAY))
        self._start_task(name)

    def spawn(self, name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run the coroutine `work` as a background task, once. If it raises, the exception is logged and reported."""
        task = asyncio.create_task(work, name=f"{self._component}: {name}")
        self._background.add(task)
        task.add_done_callback(lambda ended: self._background_task_ended(name, ended))
        return task

    def cancel(self, name: str) -> None:
        """Cancel this long-lived task without a restart; unknown names are ignored."""
        supervised = self._tasks.pop(name, None)
        if supervised is None:
            return
        if supervised.timer is not None:
            supervised.timer.cancel()
        if supervised.task is not None:
            supervised.task.cancel()
            self._background.add(supervised.task)  # `stop` awaits it
            supervised.task.add_done_callback(self._background.discard)

    def cancel_all(self) -> None:
        """Cancel every long-lived task without a restart. Does not wait for them to end: `stop` does."""
        for name in self.names:
            self.cancel(name)

    async def stop(self) -> None:
        """Cancel all tasks, background tasks included, and return when they have ended. May be called twice."""
        self.cancel_all()
        tasks = [task for task in self._background if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start_task(self, name: str) -> None:
        supervised = self._tasks[name]
        supervised.task = task = asyncio.create_task(supervised.run(), name=f"{self._component}: {name}")
        task.add_done_callback(lambda ended: self._task_ended(name, ended))
        loop = asyncio.get_running_loop()
        supervised.timer = None
        if supervised.error:
            supervised.timer = loop.call_later(HEALTHY_SECONDS, self._mark_healthy, name)
            self._on_change()

    def _mark_healthy(self, name: str) -> None:
        supervised = self._tasks[name]
        supervised.error, supervised.timer = "", None
        supervised.backoff.reset()
        self._on_change()

    def _task_ended(self, name: str, task: asyncio.Task[None]) -> None:
        supervised = self._tasks.get(name)
        if supervised is None or supervised.task is not task:
            return  # cancelled by `cancel`
        if supervised.timer is not None:
            supervised.timer.cancel()
        pause = supervised.backoff.next_delay()
        supervised.error = f"{self._component}: the task {name!r} {_how_it_ended(task)}"
        supervised.task = None
        supervised.timer = asyncio.get_running_loop().call_later(pause, self._start_task, name)
        self._log_and_report(f"{supervised.error}; restarting it in {pause:.1f} s", task)
        self._on_change()

    def _background_task_ended(self, name: str, task: asyncio.Task[Any]) -> None:
        self._background.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._log_and_report(f"{self._component}: the task {name!r} {_how_it_ended(task)}", task)

    def _log_and_report(self, message: str, task: asyncio.Task[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        log.error("%s", message, exc_info=error)
        if self._report is not None:
            self._report(message)


def _how_it_ended(task: asyncio.Task[Any]) -> str:
    if task.cancelled():
        return "was cancelled"
    error = task.exception()
    return "returned" if error is None else f"failed: {type(error).__name__}: {error}"
