"""One `trainyard run`: start a cluster, submit, show, wait, wind down. A client of the API like any other.

The end has an order, so that no line is lost: what has ended is printed to its last line; the table is drawn from what
is true at that moment; nobody makes pods any more; what still runs is deleted, ends within its grace and is printed to
its last line too; then the table, and the cluster goes.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import yaml

from trainyard.app.kubeconfig import Access
from trainyard.app.local import LocalCluster, Options
from trainyard.cli import diagnosis
from trainyard.cli.codes import CANNOT, FAILED, INTERRUPTED, READER_GONE, SUCCEEDED, TIMEOUT
from trainyard.cli.evidence import gather
from trainyard.cli.follow import Logs
from trainyard.cli.interrupts import Interrupts
from trainyard.cli.jobs import Found
from trainyard.cli.screen import Screen
from trainyard.cli.speaking import Here
from trainyard.cli.submission import NAMESPACE, Submission
from trainyard.cli.view import PATIENCE, Board, progress, replica, result, table
from trainyard.client import AlreadyExists, ApiError, Selection
from trainyard.control import Feed, Source, Store, plain
from trainyard.control.watch import Said
from trainyard.kinds import kind_of
from trainyard.node import NodeError
from trainyard.objects import GVK, Json, Problem, encode, name_of, namespace_of, uid_of
from trainyard.objects.labels import OWNER
from trainyard.objects.manifest import ManifestError

Seen = Callable[[Json | None, Json | None], None]
POD = GVK("", "v1", "Pod", "pods")
EVENT = GVK("", "v1", "Event", "events")
CANNOT_RUN = (OSError, ApiError, NodeError)
_CUT_SHORT = {
    CANNOT: "given up",
    TIMEOUT: "stopped by --timeout",
    INTERRUPTED: "interrupted",
    READER_GONE: "interrupted",
}
LAST_LINES = 10.0  # seconds for the last lines of what has ended
QUIET = 15.0  # seconds between two looks at what holds a job up
MOST_LINES = 6  # of a program's output, where it is shown anyhow
SETTLING = 1.0  # seconds for peers to end by themselves
SLACK = 10.0  # seconds beyond its grace until a pod that does not go is left to the cluster's own end


@dataclass(frozen=True, slots=True)
class Settings:
    """What a person said on the command line, about the run itself."""

    timeout: float | None = None
    keep: bool = False
    output: str = ""


async def run(submission: Submission, options: Options, settings: Settings, screen: Screen, stop: Interrupts) -> int:
    """The whole of it. Returns the exit code. Raises ManifestError, and OSError when there is no place to run."""
    cluster = LocalCluster(options)
    session = Session(cluster, submission, screen)
    try:
        if not await stop.unless(stop.once, cluster.start()):
            return _interrupted(stop)
        if not await stop.unless(stop.once, session.submit()):
            return _interrupted(stop)
        return await _to_the_end(session, settings, screen, stop)
    finally:
        session.close()
        if stop.twice.is_set() or not await stop.unless(stop.twice, cluster.stop()):
            await cluster.stop(kill=True)


async def _to_the_end(session: Session, settings: Settings, screen: Screen, stop: Interrupts) -> int:
    code = await _outcome(session, settings, stop)
    if code == SUCCEEDED:
        await stop.unless(stop.once, session.settled())
    if not stop.once.is_set():
        await stop.unless(stop.once, session.logs.finish(True, LAST_LINES))
    if code in (FAILED, TIMEOUT) and not stop.once.is_set():
        await stop.unless(stop.once, session.explain(None))
    lines = table(session.board, time.time(), _CUT_SHORT.get(code, ""))
    screen.end_progress()
    if stop.once.is_set():
        screen.note("interrupted: the pods end within their grace period; once more kills them")
    if settings.keep and not stop.once.is_set():
        _report(session, settings, screen, lines)
        path = session.cluster.write_kubeconfig()
        screen.note(f"The cluster stays up until Ctrl-C. Another terminal reaches it with\n  export KUBECONFIG={path}")
        await stop.once.wait()
        await stop.unless(stop.twice, session.wind_down())
        return code
    await stop.unless(stop.twice, session.wind_down())
    _report(session, settings, screen, lines)
    return code


async def _outcome(session: Session, settings: Settings, stop: Interrupts) -> int:
    try:
        async with asyncio.timeout(settings.timeout):
            if not await stop.unless(stop.once, session.ended()):
                return _interrupted(stop)
    except TimeoutError:
        session.screen.note(f"the time is over (--timeout {settings.timeout:g})")
        return TIMEOUT
    if blocked := session.board.blocked(time.time()):
        session.screen.note(f"cannot run here: {blocked}")
        return CANNOT
    ends = [result(job) for job in session.board.jobs.values()]
    return SUCCEEDED if all(end == "Succeeded" for end in ends) else FAILED


def _interrupted(stop: Interrupts) -> int:
    return READER_GONE if stop.reader_gone else INTERRUPTED


def _report(session: Session, settings: Settings, screen: Screen, lines: list[str]) -> None:
    for line in lines:
        (screen.note if settings.output else screen.result)(line)
    jobs = list(session.board.jobs.values())
    if settings.output == "json":
        screen.result(encode(jobs).decode())
    elif settings.output == "yaml":
        screen.result(yaml.safe_dump(jobs, sort_keys=False, allow_unicode=True).rstrip("\n"))


class Session:
    """What is submitted and what is seen of it."""

    def __init__(self, cluster: LocalCluster, submission: Submission, screen: Screen) -> None:
        self.cluster = cluster
        self.screen = screen
        self.board = Board()
        self.logs: Logs
        self._submission = submission
        self._pods: Store[Json] = Store(plain(api_version="v1", kind="Pod"))
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self._news = asyncio.Event()
        self._began = time.monotonic()
        self._said: set[str] = set()
        self._explained: set[tuple[str, str, str]] = set()

    # --- the beginning

    async def submit(self) -> None:
        """Make everything, jobs last, and begin to look. Raises ManifestError for what the API server refuses."""
        self.logs = Logs(self.cluster.api, self.screen, lambda pod: self.board.label(replica(pod)))
        for warning in self._submission.warnings:
            self.screen.note(f"warning: {warning}")
        for namespace in self._submission.namespaces:
            await self.cluster.namespace(namespace)
        for gvk, obj in self._submission.others:
            with contextlib.suppress(AlreadyExists):
                await self._make(gvk, "" if gvk == NAMESPACE else namespace_of(obj), obj)
        for kind, obj in self._submission.jobs:
            self.board.see_job(await self._make(kind.gvk, namespace_of(obj), obj))
        self._began = time.monotonic()
        self._look()

    async def _make(self, gvk: GVK, namespace: str, obj: Json) -> Json:
        try:
            return {"apiVersion": gvk.api_version, "kind": gvk.kind} | await self.cluster.api.create(
                gvk, namespace, obj
            )
        except AlreadyExists:
            raise
        except ApiError as error:
            if error.code in (400, 403, 404, 422):
                raise ManifestError([Problem(f"{gvk.kind} {name_of(obj)}", error.message)]) from None
            raise

    def _look(self) -> None:
        kinds = {kind.gvk for kind, _ in self._submission.jobs}
        for gvk in kinds:
            store = Store(plain(api_version=gvk.api_version, kind=gvk.kind))
            self._follow(Source(gvk), store, self._job_seen)
        self._follow(Source(POD, which=Selection(OWNER)), self._pods, self._pod_seen)
        self._follow(Source(EVENT, optional=True), Store(plain(api_version="v1", kind="Event")), self._event_seen)
        self._tasks += [asyncio.create_task(self._show_progress()), asyncio.create_task(self._watch_over())]

    def _follow(self, source: Source, store: Store[Json], seen: Seen) -> None:
        def apply(said: Said[Json]) -> None:
            for change in store.apply(said):
                seen(change.before, change.after)
            self._changed.set()
            self._news.set()

        self._tasks.append(asyncio.create_task(Feed(self.cluster.api, source, store.view, apply).run()))

    # --- what is seen

    def _job_seen(self, before: Json | None, after: Json | None) -> None:
        job = after or before
        if job is None or uid_of(job) not in self.board.jobs:
            return
        if after is not None:
            self.board.see_job(after)
        elif not result(job):
            self.board.deleted.add(uid_of(job))

    def _pod_seen(self, before: Json | None, after: Json | None) -> None:
        pod = after or before
        if pod is None or pod["metadata"]["labels"].get(OWNER) not in self.board.jobs:
            return
        self.board.see_pod(pod, time.time())
        if after is not None:
            self.logs.see(after)
        else:
            self.logs.gone(pod)

    def _event_seen(self, before: Json | None, after: Json | None) -> None:
        """Warnings are said once, but for what the table says anyhow."""
        if after is None or after.get("type") != "Warning" or after.get("reason") == "Failed":
            return
        about = after.get("involvedObject") or {}
        text = f"warning: {about.get('kind')} {about.get('name')}: {after.get('message') or after.get('reason')}"
        if text not in self._said:
            self._said.add(text)
            self.screen.note(text)

    async def _show_progress(self) -> None:
        """At most once a second where it is written down; every second where a clock runs on a terminal."""
        while True:
            self._news.clear()
            live = progress(self.board, time.monotonic() - self._began)
            self.screen.progress(live, progress(self.board, None))
            await asyncio.sleep(0.1 if self.screen.live else 1.0)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0 if self.screen.live else None):
                    await self._news.wait()

    async def _watch_over(self) -> None:
        """What holds a job up is said, once, when it has done so for a while; not what will pass by itself."""
        while True:
            await asyncio.sleep(QUIET)
            await self.explain(diagnosis.BLOCK)

    async def explain(self, level: int | None) -> None:
        """Say why the jobs are as they are: findings that matter so much, or all of them. Each is said once."""
        for job in list(self.board.jobs.values()):
            kind = kind_of(job)
            if kind is None or result(job) == "Succeeded" or (level is not None and result(job)):
                continue
            here = Here(self.cluster.api, namespace_of(job), Access(self.cluster.server.tls_url))
            with contextlib.suppress(ApiError):
                facts = await gather(here, Found(kind, job))
                fresh = [one for one in diagnosis.why(facts) if level is None or one.level <= level]
                fresh = [one for one in fresh if (uid_of(job), one.where, one.fix) not in self._explained]
                self._explained.update((uid_of(job), one.where, one.fix) for one in fresh)
                if result(job):  # the table says how it ended
                    fresh = [replace(one, evidence=()) if one.where == diagnosis.ENDED else one for one in fresh]
                for line in diagnosis.told(facts, fresh, MOST_LINES) if fresh else ():
                    self.screen.note(line)

    async def ended(self) -> None:
        """Until every job has ended, or one never will."""
        while not (self.board.ended() or self.board.blocked(time.time())):
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE if self.board.waiting else None):
                    await self._changed.wait()

    # --- the end

    async def settled(self) -> None:
        """The peers of the replica that decided often end a moment after it. Then the table shows their end, not ours.

        Some run for ever, as parameter servers do, so the wait is short.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLING):
                while any((pod.get("status") or {}).get("phase") == "Running" for pod in self._pods):
                    self._changed.clear()
                    await self._changed.wait()

    async def wind_down(self) -> None:
        """Nobody makes pods any more; what still runs ends within its grace, and is printed to its last line."""
        await self.cluster.stop_controllers()
        longest = 0.0
        for pod in self._pods:
            longest = max(longest, float(pod["spec"].get("terminationGracePeriodSeconds") or 30))
            with contextlib.suppress(ApiError):
                await self.cluster.api.delete(POD, namespace_of(pod), name_of(pod), uid_of(pod))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(longest + SLACK):
                while len(self._pods):
                    self._changed.clear()
                    await self._changed.wait()
        await self.logs.finish(False, LAST_LINES)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
