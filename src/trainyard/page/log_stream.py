"""The newest lines of the logs of a job, for one open page: bounded, and what does not fit is counted."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import aclosing

from trainyard.client import ApiClient, ApiError, Unavailable
from trainyard.objects import Json, name_of, namespace_of, uid_of
from trainyard.objects.container_statuses import container_statuses
from trainyard.views.output_lines import OutputLineSplitter
from trainyard.views.replica_view import replica_view

MAX_LINES = 500  # lines that wait for the page
MAX_LINE_CHARACTERS = 4000
MAX_STREAMS = 64  # logs followed at one time
FIRST_LINES = 200  # lines of each log before the new ones; fewer where there are many replicas
RETRY_SECONDS = 1.0


class LogLines:
    """Follows the containers of the pods that `pods` returns. `replica`: the one whose pods are followed, "*" for all.
    `on_news` is called when there is something to take."""

    def __init__(self, api: ApiClient, pods: Callable[[], list[Json]], replica: str) -> None:
        self.on_news: Callable[[], None] = lambda: None
        self._api, self._pods, self._replica = api, pods, replica
        self._lines: deque[tuple[str, str]] = deque()
        self._dropped = 0
        self._streams: dict[tuple[str, str, int], asyncio.Task[None]] = {}  # by pod, container and run
        self._says_left_out = False
        self.follow_pods()

    @property
    def has_news(self) -> bool:
        """Whether `take` returns something."""
        return bool(self._lines) or self._dropped > 0

    def take(self) -> tuple[list[tuple[str, str]], int]:
        """The lines that wait, as (replica, text), and the number of lines before them that are lost."""
        lines, dropped = list(self._lines), self._dropped
        self._lines.clear()
        self._dropped = 0
        return lines, dropped

    def follow_pods(self) -> None:
        """Follow the runs of containers that have begun since."""
        chosen = [pod for pod in self._pods() if self._replica in ("*", replica_view(pod).name)]
        first_lines = max(1, FIRST_LINES // max(1, len(chosen)))
        for pod in chosen:
            for container in container_statuses(pod.get("status")):
                has_begun = container.state("running") is not None or container.state("terminated") is not None
                run = container.restarts if has_begun else container.restarts - 1  # waiting: the run before
                if run < 0:
                    continue
                key = (uid_of(pod), container.name, run)
                if key in self._streams:
                    continue
                if sum(not task.done() for task in self._streams.values()) >= MAX_STREAMS:
                    self._say_left_out()
                    return
                is_new_run = any(known[:2] == key[:2] for known in self._streams)
                tail = None if is_new_run else first_lines
                self._streams[key] = asyncio.ensure_future(
                    self._follow(pod, container.name, tail, previous=not has_begun)
                )

    def _say_left_out(self) -> None:
        if not self._says_left_out:
            self._says_left_out = True
            self._add("*", [f"(more than {MAX_STREAMS} logs: open a replica to see the others)".encode()])

    async def close(self) -> None:
        """End all streams."""
        for task in self._streams.values():
            task.cancel()
        await asyncio.gather(*self._streams.values(), return_exceptions=True)

    async def _follow(self, pod: Json, container: str, tail: int | None, *, previous: bool) -> None:
        replica, splitter = replica_view(pod).name, OutputLineSplitter()
        while True:
            try:
                where = namespace_of(pod), name_of(pod), container
                logs = self._api.logs(*where, follow=not previous, previous=previous, tail_lines=tail)
                async with aclosing(logs) as chunks:
                    async for chunk in chunks:
                        self._add(replica, splitter.feed(chunk))
                self._add(replica, splitter.finish())
                return
            except Unavailable:
                tail = 0  # what was written meanwhile is in the whole log
                await asyncio.sleep(RETRY_SECONDS)
            except ApiError as error:
                self._add(replica, [f"(its log cannot be shown: {error.message})".encode()])
                return

    def _add(self, replica: str, lines: list[bytes]) -> None:
        for line in lines:
            if len(self._lines) >= MAX_LINES:
                self._lines.popleft()
                self._dropped += 1
            self._lines.append(
                (replica, line[: 4 * MAX_LINE_CHARACTERS].decode("utf-8", "replace")[:MAX_LINE_CHARACTERS])
            )
        if lines:
            self.on_news()
