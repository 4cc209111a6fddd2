"""A supervisor of the long-lived asyncio tasks of a component: it restarts each task that ends.

    tasks = TaskSupervisor("node", say)
    tasks.start("watch pods", feed.run); ...; await tasks.stop()

Rules for this file:
- A long-lived task must not return. If it returns, raises, or is cancelled by anybody but the supervisor, that logs the
  traceback, reports one message, and restarts it after a back-off, without limit, as restartPolicy Always does.
- `failing` has the message of a task while it waits for its restart, and after UNHEALTHY_DEATHS consecutive deaths
  until it has run for HEALTHY_SECONDS. A Node is NotReady then; an operator fails /readyz, and /healthz if unhealthy.
- `spawn` runs background work that ends by itself: its exception is logged and reported and affects no other task.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from itertools import count
from typing import Any

from trainyard.controller_runtime.backoff import Backoff

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.25, 30.0  # seconds before a restart
HEALTHY_SECONDS = 60.0  # after which a restarted task counts as healthy
UNHEALTHY_DEATHS = 3  # in a row: restarting the task does not help

Run = Callable[[], Coroutine[Any, Any, None]]


@dataclass(slots=True)
class _Supervised:
    run: Run
    backoff: Backoff
    task: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None  # of the restart, or of the return to health
    error: str = ""  # the sentence about its last death, "" while it is healthy

    @property
    def unhealthy(self) -> bool:
        return self.error != "" and self.backoff.failures >= UNHEALTHY_DEATHS


class TaskSupervisor:
    """Owner of the long-lived tasks of one component. `component` begins each sentence that `report` gets (it may be
    None: then there is only the log). `changed` is called when `failing` has changed."""

    def __init__(
        self,
        component: str,
        report: Callable[[str], object] | None = None,
        changed: Callable[[], object] = lambda: None,
    ) -> None:
        self._component, self._report, self._changed = component, report, changed
        self._tasks: dict[str, _Supervised] = {}
        self._once: set[asyncio.Task[Any]] = set()

    @property
    def names(self) -> list[str]:
        """Of all long-lived tasks, those that wait for a restart included."""
        return list(self._tasks)

    @property
    def failing(self) -> str:
        """The sentences about the tasks that do not run now, and of those in `unhealthy`; "" when there is none."""
        down = [task.error for task in self._tasks.values() if task.error and (task.task is None or task.unhealthy)]
        return "; ".join(down)

    @property
    def unhealthy(self) -> str:
        """The sentences about the tasks that restarts do not help, "" when there is none."""
        return "; ".join(task.error for task in self._tasks.values() if task.unhealthy)

    def task(self, name: str) -> asyncio.Task[None] | None:
        """The task of that name, None while it waits for its restart. Raises KeyError."""
        return self._tasks[name].task

    def start(self, name: str, run: Run) -> None:
        """Run `run()` for ever. A second task of a name gets a number: a resource may be watched in two namespaces."""
        if name in self._tasks:
            name = next(other for number in count(2) if (other := f"{name} ({number})") not in self._tasks)
        self._tasks[name] = _Supervised(run, Backoff(FIRST_PAUSE, LONGEST_PAUSE))
        self._begin(name)

    def spawn(self, name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run `work` once, in the background. If it raises, that is logged and reported."""
        task = asyncio.create_task(work, name=f"{self._component}: {name}")
        self._once.add(task)
        task.add_done_callback(lambda done: self._finished(name, done))
        return task

    def cancel(self, name: str) -> None:
        """End that long-lived task for good; unknown names are ignored."""
        supervised = self._tasks.pop(name, None)
        if supervised is None:
            return
        if supervised.timer is not None:
            supervised.timer.cancel()
        if supervised.task is not None:
            supervised.task.cancel()
            self._once.add(supervised.task)  # `stop` awaits it
            supervised.task.add_done_callback(self._once.discard)

    def cancel_all(self) -> None:
        """End every long-lived task for good; `stop` awaits them."""
        for name in self.names:
            self.cancel(name)

    async def stop(self) -> None:
        """Cancel everything and return when it has ended. May be called twice."""
        self.cancel_all()
        tasks = [task for task in self._once if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, name: str) -> None:
        supervised = self._tasks[name]
        supervised.task = task = asyncio.create_task(supervised.run(), name=f"{self._component}: {name}")
        task.add_done_callback(lambda done: self._died(name, done))
        loop = asyncio.get_running_loop()
        supervised.timer = None
        if supervised.error:
            supervised.timer = loop.call_later(HEALTHY_SECONDS, self._recovered, name)
            self._changed()

    def _recovered(self, name: str) -> None:
        supervised = self._tasks[name]
        supervised.error, supervised.timer = "", None
        supervised.backoff.reset()
        self._changed()

    def _died(self, name: str, task: asyncio.Task[None]) -> None:
        supervised = self._tasks.get(name)
        if supervised is None or supervised.task is not task:
            return  # its owner has ended it
        if supervised.timer is not None:
            supervised.timer.cancel()
        pause = supervised.backoff.failed()
        supervised.error = f"{self._component}: the task {name!r} {_end_of(task)}"
        supervised.task = None
        supervised.timer = asyncio.get_running_loop().call_later(pause, self._begin, name)
        self._tell(f"{supervised.error}; restarting it in {pause:.1f} s", task)
        self._changed()

    def _finished(self, name: str, task: asyncio.Task[Any]) -> None:
        self._once.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._tell(f"{self._component}: the task {name!r} {_end_of(task)}", task)

    def _tell(self, sentence: str, task: asyncio.Task[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        log.error("%s", sentence, exc_info=error)
        if self._report is not None:
            self._report(sentence)


def _end_of(task: asyncio.Task[Any]) -> str:
    if task.cancelled():
        return "was cancelled"
    error = task.exception()
    return "returned" if error is None else f"failed: {type(error).__name__}: {error}"
