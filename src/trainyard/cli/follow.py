"""The logs of all replicas, merged line by line. Every run of every container is followed from its first byte.

A container's log, as the API has it, is that of its present run; `previous` is the run before. So a follower takes the
runs one by one, and knows from the pod's status which run is the present one. A program that ends at once is restarted
at once, and what was read as run 0 may then have been run 1: when the next run is there, the finished one is compared
with `previous`, and printed if it was not what had been printed. A kubelet may end a stream before the last lines, and
of a long output it keeps only the end: then what was printed begins, or ends, as the finished run does.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from hashlib import sha256

from trainyard.cli.screen import Cut, Screen
from trainyard.client import Api, ApiError, NotFound, Unavailable
from trainyard.objects import Json, name_of, namespace_of, uid_of

AGAIN = 0.2  # seconds before a broken stream is opened once more


class Logs:
    """Tell it of every pod you see; it follows what there is to follow.

    With `tail` the present run of each container is shown from that many lines before its end, and none before it.
    `only` names one container of each pod.
    """

    def __init__(
        self, api: Api, screen: Screen, label: Callable[[Json], str], tail: int | None = None, only: str = ""
    ) -> None:
        self._api = api
        self._screen = screen
        self._label = label
        self._tail = tail
        self._only = only
        self._followers: dict[tuple[str, str], Follower] = {}

    def see(self, pod: Json) -> None:
        status = pod.get("status") or {}
        inits = [one["name"] for one in status.get("initContainerStatuses") or []]
        mains = [one["name"] for one in status.get("containerStatuses") or []]
        over = status.get("phase") in ("Succeeded", "Failed")
        for one in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
            key = (uid_of(pod), one["name"])
            if self._only and one["name"] != self._only:
                continue
            if key not in self._followers:
                if newest_run(one) < 0:
                    continue
                alone = len(mains) == 1 and one["name"] not in inits
                prefix = self._label(pod) if alone else f"{self._label(pod)}/{one['name']}"
                where = (namespace_of(pod), name_of(pod), one["name"])
                self._followers[key] = Follower(self._api, self._screen, where, prefix, self._tail)
            self._followers[key].see(one, over)

    def gone(self, pod: Json) -> None:
        """The pod is not there any more: there is nothing left to wait for."""
        for (uid, _), follower in self._followers.items():
            if uid == uid_of(pod):
                follower.over()

    async def finish(self, ended_only: bool, seconds: float) -> None:
        """Wait until what has ended is printed to its last line, but not for ever."""
        tasks = [one.task for one in self._followers.values() if one.ends or not ended_only]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)

    async def stop(self) -> None:
        tasks = [one.task for one in self._followers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def newest_run(container: Json) -> int:
    """The newest run that has begun, counted from 0; -1 for none."""
    count = int(container.get("restartCount") or 0)
    state = container.get("state") or {}
    waiting = state.get("waiting")
    if state.get("running") or state.get("terminated"):
        return count
    if waiting and waiting.get("reason") == "CrashLoopBackOff":
        return count
    return count - 1  # the count may already be that of the run to come


class Follower:
    """One container of one pod, run by run."""

    def __init__(
        self, api: Api, screen: Screen, where: tuple[str, str, str], prefix: str, tail: int | None = None
    ) -> None:
        self._api = api
        self._screen = screen
        self._tail = tail  # of the first run that is shown; None: all of it
        self._where = where  # namespace, pod, container
        self._prefix = prefix
        self._run = -1  # the newest run that has begun, counted from 0
        self._open = True  # another run may come
        self._news = asyncio.Event()
        self.ends = False  # no further run will come: what is left is to be printed
        self.task = asyncio.create_task(self._follow())

    def see(self, container: Json, over: bool) -> None:
        self._run = max(self._run, newest_run(container))
        if over:
            self.over()
        self._news.set()

    def over(self) -> None:
        self._open, self.ends = False, True
        self._news.set()

    async def _follow(self) -> None:
        run = 0
        if self._tail is not None:
            await self._begins(0)
            run = max(0, self._run)
        while await self._begins(run):
            if self._run > run + 1:
                self._screen.note(f"{self._prefix}: the output of {self._run - 1 - run} earlier runs is gone")
                run = self._run - 1
            live = self._run == run
            printed = await self._print(previous=not live)
            if (
                live
                and self._tail is None
                and await self._begins(run + 1)
                and self._run == run + 1
                and not await self._completes(printed)
            ):
                # What was printed belonged to the run that has begun meanwhile.
                await self._print(previous=True)
                await self._print(previous=False, skip=printed)
                run += 1
            self._tail = None
            run += 1

    async def _begins(self, run: int) -> bool:
        """Wait until that run has begun. False when it never will."""
        while self._run < run:
            if not self._open:
                return False
            self._news.clear()
            await self._news.wait()
        return True

    async def _print(self, previous: bool, skip: Printed | None = None) -> Printed:
        """One run, to its end. A stream that breaks is opened again and goes on where it broke."""
        cut, printed = Cut(), Printed()
        begin, broken, run = skip.size if skip else 0, False, self._run
        while True:
            try:
                if broken and self._tail is None:
                    found = await self._beginning(printed, begin, previous)
                    if found is None and self._run != run:
                        break  # that is the next run's; what is left of this one will be in `previous`
                    if found is None:
                        self._screen.note(f"{self._prefix}: some of its output is gone")
                    begin = -printed.size if found is None else found
                size, seen = (begin + printed.size, 0) if self._tail is None else (0, 0)
                async with aclosing(self._stream(previous)) as chunks:
                    async for chunk in chunks:
                        fresh = chunk[max(0, size - seen) :]
                        seen += len(chunk)
                        printed.add(fresh)
                        self._say(cut.feed(fresh))
                        await self._screen.space()
                break
            except NotFound:
                break
            except Unavailable:
                if not self._open:
                    break
                broken = True
                if self._tail is not None:
                    self._tail = 0  # where it broke cannot be found again; what comes from now on can
                await asyncio.sleep(AGAIN)
            except ApiError as error:
                if error.code != 400:  # 400: it never started, so there is nothing to show
                    self._screen.note(f"{self._prefix}: its output cannot be shown: {error}")
                break
        self._say(cut.end())
        return printed

    async def _beginning(self, printed: Printed, begin: int, previous: bool) -> int | None:
        """Where in the log, as it is now, that begins which was printed. It began at `begin`; where the kubelet has
        cut the beginning of a long log off, that is before the log's first byte. None: nothing of it is there."""
        if not printed.size:
            return begin
        end, place = printed.end, begin + printed.size
        window, base, found = b"", 0, 0
        async for chunk in self._stream(previous, follow=False):
            window += chunk
            if place - len(end) >= base and window.startswith(end, place - len(end) - base):
                return begin
            if (at := window.rfind(end)) >= 0:
                found = base + at + len(end)
            over = max(0, len(window) - len(end) + 1)
            window, base = window[over:], base + over
        return found - printed.size if found else None

    def _stream(self, previous: bool, follow: bool = True) -> AsyncGenerator[bytes]:
        namespace, pod, container = self._where
        follow = follow and not previous
        return self._api.logs(namespace, pod, container, follow=follow, previous=previous, tail_lines=self._tail)

    def _say(self, lines: list[bytes]) -> None:
        for line in lines:
            self._screen.log(self._prefix, line)

    async def _completes(self, printed: Printed) -> bool:
        """Prints what the finished run put out after this. False when this was the output of another run."""
        cut, found, begins = Cut(), Printed(), not printed.size
        with contextlib.suppress(ApiError):
            async for chunk in self._stream(previous=True):
                left = max(0, printed.size - found.size)
                found.add(chunk[:left])
                begins = begins or found == printed
                if begins:
                    self._say(cut.feed(chunk[left:]))
                    await self._screen.space()
                found.add(chunk[left:])
            self._say(cut.end())
            return begins or found.ends_as(printed)
        return True  # we cannot tell


class Printed:
    """How much was put out, and what it was."""

    END = 4096  # bytes

    def __init__(self) -> None:
        self.size = 0
        self.end = b""
        self._hash = sha256()

    def add(self, chunk: bytes) -> None:
        self.size += len(chunk)
        self._hash.update(chunk)
        self.end = (self.end + chunk[-self.END :])[-self.END :]

    def ends_as(self, longer: Printed) -> bool:
        """It is something, and `longer` ends with it, as far as both ends are known."""
        return bool(self.end) and longer.end.endswith(self.end)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Printed) and self._hash.digest() == other._hash.digest()

    def __hash__(self) -> int:
        return hash(self._hash.digest())
