"""The logs of all replicas, merged line by line. Every run of every container is followed from its first byte.

The pods/log subresource returns the log of a container's current run, or with `previous` that of the run before. A
follower therefore reads the runs in order, and takes the number of the current run from the pod's status. A container
that exits at once is restarted at once, so a stream opened for run 0 may have returned the log of run 1. When the next
run has started, the follower compares the printed log with `previous`, and prints `previous` if they differ. A kubelet
may end a stream before the last lines, and keeps only the end of a long log: so the printed log matches if it is the
beginning of the previous log, or if it ends as the previous log does.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from hashlib import sha256

from trainyard.cli.output.log_prefixes import log_prefix
from trainyard.cli.output.screen import Screen
from trainyard.client import ApiClient, ApiError, NotFound, Unavailable
from trainyard.objects import Json, name_of, namespace_of, uid_of
from trainyard.objects.container_statuses import ContainerStatus, container_statuses
from trainyard.views.output_lines import OutputLineSplitter

RETRY_SECONDS = 0.2  # seconds before a broken stream is opened again
TRIES_AFTER_END = 10  # to read the rest of a log whose container has ended, without any progress
STALLED_SECONDS = 10.0  # a log of an ended container that returns nothing for so long is given up


class LogFollowers:
    """The log followers of all containers. Call `update_pod` for every pod of a watch, `delete_pod` for every deleted
    pod.

    With `tail`, only the current run of each container is printed, from that many lines before its end.
    `only`: the name of the one container of each pod whose log is printed; "" for all.
    """

    def __init__(
        self, api: ApiClient, screen: Screen, label: Callable[[Json], str], tail: int | None = None, only: str = ""
    ) -> None:
        self._api = api
        self._screen = screen
        self._label = label
        self._tail = tail
        self._only = only
        self._followers: dict[tuple[str, str], ContainerFollower] = {}

    def update_pod(self, pod: Json) -> None:
        """Start to follow the containers of the pod that have run, and tell the followers their new status."""
        status = pod.get("status") or {}
        containers = container_statuses(status)
        count = sum(not container.init for container in containers)
        pod_ended = status.get("phase") in ("Succeeded", "Failed")
        for container in containers:
            key = (uid_of(pod), container.name)
            if self._only and container.name != self._only:
                continue
            if key not in self._followers:
                if newest_run(container) < 0:
                    continue
                prefix = log_prefix(self._label(pod), container.name, container.init, count)
                container_ref = (namespace_of(pod), name_of(pod), container.name)
                self._followers[key] = ContainerFollower(self._api, self._screen, container_ref, prefix, self._tail)
            self._followers[key].update_status(container, pod_ended)

    def delete_pod(self, pod: Json) -> None:
        """The pod is deleted: its containers have no further run."""
        for (uid, _), follower in self._followers.items():
            if uid == uid_of(pod):
                follower.set_ended()

    async def finish(self, ended_pods_only: bool, stalled_after: float = STALLED_SECONDS) -> None:
        """Wait until the logs are printed to their last line: all, or those of ended pods only. A note names the logs
        that are given up because none of them has returned anything for `stalled_after` seconds."""
        pending = [follower for follower in self._followers.values() if follower.ended or not ended_pods_only]
        while pending:
            read = [follower.bytes_read for follower in pending]
            await asyncio.wait([follower.task for follower in pending], timeout=stalled_after)
            stalled = not self._screen.is_full and read == [follower.bytes_read for follower in pending]
            pending = [follower for follower in pending if not follower.task.done()]
            if pending and stalled:
                names = ", ".join(follower.prefix for follower in pending)
                self._screen.note(f"{names}: the rest of the output cannot be read: no answer for {stalled_after:g} s")
                return

    async def stop(self) -> None:
        """Cancel all followers and wait until they have ended."""
        tasks = [follower.task for follower in self._followers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def newest_run(container: ContainerStatus) -> int:
    """The newest run of a container that has begun, counted from 0; -1 for none."""
    if container.state("running") is not None or container.state("terminated") is not None:
        return container.restarts
    if (container.state("waiting") or {}).get("reason") == "CrashLoopBackOff":
        return container.restarts
    return container.restarts - 1  # restartCount may already include the run that is about to start


class ContainerFollower:
    """Prints the log of one container of one pod, run by run."""

    def __init__(
        self, api: ApiClient, screen: Screen, container_ref: tuple[str, str, str], prefix: str, tail: int | None = None
    ) -> None:
        self._api = api
        self._screen = screen
        self._tail = tail  # lines of the first printed run; None: all lines
        self._container_ref = container_ref  # namespace, pod, container
        self.prefix = prefix
        self.bytes_read = 0  # of all runs
        self._newest_run = -1  # the newest run that has begun, counted from 0
        self._may_restart = True  # a further run may start
        self._changed = asyncio.Event()
        self.ended = False  # no further run will start: only the rest of the log is to be printed
        self.task = asyncio.create_task(self._follow())

    def update_status(self, container: ContainerStatus, pod_ended: bool) -> None:
        """Take over the containerStatus: a new run is followed after the present one."""
        self._newest_run = max(self._newest_run, newest_run(container))
        if pod_ended:
            self.set_ended()
        self._changed.set()

    def set_ended(self) -> None:
        """No further run will come."""
        self._may_restart, self.ended = False, True
        self._changed.set()

    async def _follow(self) -> None:
        run = 0
        if self._tail is not None:
            await self._wait_for_run(0)
            run = max(0, self._newest_run)
        while await self._wait_for_run(run):
            if self._newest_run > run + 1:
                self._screen.note(f"{self.prefix}: the output of {self._newest_run - 1 - run} earlier runs is gone")
                run = self._newest_run - 1
            live = self._newest_run == run
            printed = await self._print_run(previous=not live)
            if (
                live
                and self._tail is None
                and await self._wait_for_run(run + 1)
                and self._newest_run == run + 1
                and not await self._print_rest(printed)
            ):
                # The printed log was that of the next run, which had started before the stream was opened.
                await self._print_run(previous=True)
                await self._print_run(previous=False, skip=printed)
                run += 1
            self._tail = None
            run += 1

    async def _wait_for_run(self, run: int) -> bool:
        """Wait until that run has begun. False when the container has no such run."""
        while self._newest_run < run:
            if not self._may_restart:
                return False
            self._changed.clear()
            await self._changed.wait()
        return True

    async def _print_run(self, previous: bool, skip: PrintedLog | None = None) -> PrintedLog:
        """Print one run to its end, without its first `skip.size` bytes. A broken stream is opened again and continues
        after the last printed byte, also after the end of the container. Returns the size and hash of the printed
        bytes."""
        cut, printed, offset = OutputLineSplitter(), PrintedLog(), skip.size if skip else 0
        broken, broken_at, tries, run = False, 0, 0, self._newest_run
        while True:
            try:
                if broken and self._tail is None:
                    start = await self._find_printed(printed, offset, previous)
                    if start is None and self._newest_run != run:
                        break  # this log is that of the next run; `previous` has the rest of this run
                    if start is None:
                        self._screen.note(f"{self.prefix}: some of its output is gone")
                    offset = -printed.size if start is None else start
                skip_size, read_size = (offset + printed.size, 0) if self._tail is None else (0, 0)
                async with aclosing(self._stream(previous)) as chunks:
                    async for chunk in chunks:
                        new_bytes = chunk[max(0, skip_size - read_size) :]
                        read_size += len(chunk)
                        self.bytes_read += len(chunk)
                        printed.add(new_bytes)
                        self._print_new(cut, new_bytes)
                        await self._screen.wait_for_space()
                break
            except NotFound:
                break
            except Unavailable:
                tries = tries + 1 if self.ended and printed.size == broken_at else 0
                if tries > TRIES_AFTER_END:
                    self._screen.note(f"{self.prefix}: the end of its output cannot be read")
                    break
                broken, broken_at = True, printed.size
                if self._tail is not None:
                    self._tail = 0  # the last printed byte cannot be found in a tail: continue with new lines
                await asyncio.sleep(RETRY_SECONDS)
            except ApiError as error:
                if error.code != 400:  # 400: the container has not started and has no log
                    self._screen.note(f"{self.prefix}: its output cannot be shown: {error}")
                break
        self._screen.open_line(self.prefix, b"", False)
        self._print_lines(cut.finish())
        return printed

    async def _find_printed(self, printed: PrintedLog, begin: int, previous: bool) -> int | None:
        """The offset in the current log at which the printed bytes begin. At first this was `begin`; it is negative
        when the kubelet has dropped the beginning of a long log. None: the log has none of the printed bytes."""
        if not printed.size:
            return begin
        last_bytes, expected_end = printed.last_bytes, begin + printed.size
        window, window_start, match_end = b"", 0, 0
        async for chunk in self._stream(previous, follow=False):
            window += chunk
            if expected_end - len(last_bytes) >= window_start and window.startswith(
                last_bytes, expected_end - len(last_bytes) - window_start
            ):
                return begin
            if (position := window.rfind(last_bytes)) >= 0:
                match_end = window_start + position + len(last_bytes)
            excess = max(0, len(window) - len(last_bytes) + 1)
            window, window_start = window[excess:], window_start + excess
        return match_end - printed.size if match_end else None

    def _stream(self, previous: bool, follow: bool = True) -> AsyncGenerator[bytes]:
        namespace, pod, container = self._container_ref
        follow = follow and not previous
        return self._api.logs(namespace, pod, container, follow=follow, previous=previous, tail_lines=self._tail)

    def _print_new(self, cut: OutputLineSplitter, new_bytes: bytes) -> None:
        """Print the lines that these bytes end, and show the line that they have not ended."""
        lines = cut.feed(new_bytes)
        self._screen.open_line(self.prefix, cut.open_line, cut.is_overwritten)
        self._print_lines(lines)

    def _print_lines(self, lines: list[bytes]) -> None:
        for line in lines:
            self._screen.log(self.prefix, line)

    async def _print_rest(self, printed: PrintedLog) -> bool:
        """Print the rest of the previous run's log after `printed`. False when `printed` is the log of another run."""
        cut, finished, is_prefix = OutputLineSplitter(), PrintedLog(), not printed.size
        with contextlib.suppress(ApiError):
            async for chunk in self._stream(previous=True):
                remaining = max(0, printed.size - finished.size)
                finished.add(chunk[:remaining])
                is_prefix = is_prefix or finished == printed
                if is_prefix:
                    self._print_lines(cut.feed(chunk[remaining:]))
                    await self._screen.wait_for_space()
                finished.add(chunk[remaining:])
            self._print_lines(cut.finish())
            return is_prefix or finished.is_end_of(printed)
        return True  # the previous log cannot be read: assume that it was printed


class PrintedLog:
    """The size, the hash and the last bytes of a printed log."""

    END = 4096  # bytes

    def __init__(self) -> None:
        self.size = 0
        self.last_bytes = b""
        self._hash = sha256()

    def add(self, chunk: bytes) -> None:
        """Count bytes that were printed."""
        self.size += len(chunk)
        self._hash.update(chunk)
        self.last_bytes = (self.last_bytes + chunk[-self.END :])[-self.END :]

    def is_end_of(self, longer: PrintedLog) -> bool:
        """True if this log is not empty and `longer` ends with this log's last bytes (at most END of them)."""
        return bool(self.last_bytes) and longer.last_bytes.endswith(self.last_bytes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PrintedLog) and self._hash.digest() == other._hash.digest()

    def __hash__(self) -> int:
        return hash(self._hash.digest())
