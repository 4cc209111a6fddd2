"""One `trainyard run`: start a cluster, submit the jobs, print their logs, wait for their end, stop the cluster.

It uses the API server like any other client.

The steps at the end have this order, so that no log line is lost: the logs of ended containers are printed to the last
line; the table is made; the controllers are stopped, so that no pod is created any more; the remaining pods are
deleted, end within their grace period, and their logs are printed to the last line, too; the table is made again if
jobs were interrupted; the table is printed, and the cluster is stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from trainyard.app.history import with_tilde
from trainyard.app.kubeconfig import ClusterAccess
from trainyard.app.local import LocalCluster, LocalClusterOptions
from trainyard.cli.cluster_command import ClusterContext
from trainyard.cli.codes import FAILED, INTERRUPTED, READER_GONE, SUCCEEDED, TIMEOUT, UNAVAILABLE
from trainyard.cli.follow import LogFollowers
from trainyard.cli.jobs import JobInfo
from trainyard.cli.layout import terminal_width
from trainyard.cli.replica_view import REFERENCE_TIMEOUT, replica
from trainyard.cli.screen import Screen
from trainyard.cli.signals import Interrupts
from trainyard.cli.submission import Submission
from trainyard.cli.view import JobView, job_result, progress, table
from trainyard.client import AlreadyExists, ApiError, Selection
from trainyard.controller_runtime import TaskSupervisor
from trainyard.controller_runtime.object_adapter import dict_adapter
from trainyard.controller_runtime.reflector import Reflector, StoreEvent, WatchTarget
from trainyard.controller_runtime.store import Store
from trainyard.kinds import kind_of
from trainyard.node import NodeError
from trainyard.objects import GVK, Json, Problem, encode, name_of, namespace_of, uid_of
from trainyard.objects.labels import OWNER
from trainyard.objects.manifest import ManifestError
from trainyard.objects.resources import EVENT, NAMESPACE, POD
from trainyard.objects.structs import replace
from trainyard.objects.yaml_text import as_yaml

if TYPE_CHECKING:  # imported at run time only when a finding is printed
    from trainyard.cli import diagnosis

ChangeHandler = Callable[[Json | None, Json | None], None]
CANNOT_RUN = (OSError, ApiError, NodeError)
_INTERRUPTION_TEXTS = {
    UNAVAILABLE: "given up",
    TIMEOUT: "stopped by --timeout",
    INTERRUPTED: "interrupted",
    READER_GONE: "interrupted",
}
LAST_LINES = 10.0  # timeout in seconds for the last lines of ended containers
# Reasons of events without a warning of their own: the findings of `why` cover them, with the fix.
REASONS_COVERED_BY_WHY = frozenset({"Failed", "FailedCreate", "FailedScheduling", "FailedMount", "BackOff"})
EVENT_PAUSE = 1.0  # seconds from an event to its warning
BLOCK_CHECK_SECONDS = 15.0  # seconds between two checks for causes that block a job
MOST_LINES = 6  # of a program's output in a finding; the logs are printed anyway
PEER_TIMEOUT = 1.0  # seconds in which the other pods may end by themselves after a job's end
DELETION_SLACK = 10.0  # seconds after the grace period; pods that still run then are left to LocalCluster.stop


class Settings(msgspec.Struct, frozen=True):
    """The command line options about the run itself. `timeout` is in seconds."""

    timeout: float | None = None
    keep: bool = False
    output: str = ""


async def run(
    submission: Submission, options: LocalClusterOptions, settings: Settings, screen: Screen, stop: Interrupts
) -> int:
    """Runs the jobs of `submission` in a new cluster and stops the cluster. Returns the exit code.

    Raises ManifestError for objects that the API server refuses, and the exceptions of CANNOT_RUN when the cluster
    cannot run on this machine."""
    cluster = LocalCluster(options)
    session = Session(cluster, submission, screen)
    try:
        if not await stop.run_unless(stop.first, cluster.start(session.submit)):
            return _interruption_code(stop, screen)
        return await _run_to_end(session, settings, screen, stop)
    finally:
        session.close()
        if stop.second.is_set() or not await stop.run_unless(stop.second, cluster.stop()):
            await cluster.stop(kill=True)


async def _run_to_end(session: Session, settings: Settings, screen: Screen, stop: Interrupts) -> int:
    code = await _wait_for_exit_code(session, settings, stop)
    session.cluster.interruption = _INTERRUPTION_TEXTS.get(code, "")
    if code == UNAVAILABLE and (blocked_text := session.board.blocked_reason(time.time())):
        session.cluster.interruption += f": {blocked_text}"
    if code in (SUCCEEDED, FAILED):  # other replicas that end for the same reason end a moment later
        await stop.run_unless(stop.first, session.wait_for_peers())
    if not stop.first.is_set():
        await stop.run_unless(stop.first, session.logs.finish(True, LAST_LINES))
    if code in (FAILED, TIMEOUT, UNAVAILABLE) and not stop.first.is_set():
        await stop.run_unless(stop.first, session.explain_end(code))
    lines = _table(session, settings, screen, _INTERRUPTION_TEXTS.get(code, ""))
    screen.end_progress()
    if stop.first.is_set() and not stop.reader_gone:
        screen.note("interrupted: the pods end within their grace period; once more kills them")
    if settings.keep and not stop.first.is_set():
        _report(session, settings, screen, lines)
        path = session.cluster.write_kubeconfig()
        screen.note(f"The cluster stays up until Ctrl-C. Another terminal reaches it with\n  export KUBECONFIG={path}")
        await stop.first.wait()
        await stop.run_unless(stop.second, session.wind_down())
        return code
    await stop.run_unless(stop.second, session.wind_down())
    if code in _INTERRUPTION_TEXTS:  # these pods have ended only now: the table has their exit codes and times
        lines = _table(session, settings, screen, _INTERRUPTION_TEXTS[code])
    _report(session, settings, screen, lines)
    return code


async def _wait_for_exit_code(session: Session, settings: Settings, stop: Interrupts) -> int:
    try:
        async with asyncio.timeout(settings.timeout):
            if not await stop.run_unless(stop.first, session.wait_until_ended()):
                return _interruption_code(stop, session.screen)
    except TimeoutError:
        session.screen.note(f"the time is over (--timeout {settings.timeout:g})")
        return TIMEOUT
    if session.board.blocked_reason(time.time()):
        return UNAVAILABLE
    ends = [job_result(job) for job in session.board.jobs.values()]
    return SUCCEEDED if all(end == "Succeeded" for end in ends) else FAILED


def _interruption_code(stop: Interrupts, screen: Screen) -> int:
    if screen.output_error is not None:
        return UNAVAILABLE
    return READER_GONE if stop.reader_gone else INTERRUPTED


def _table(session: Session, settings: Settings, screen: Screen, cut_short: str) -> list[str]:
    """The table of replicas and a line for each job, without the reason if `session.explanation` has it."""
    colour = screen.colour_notes if settings.output else screen.colour_result
    return table(session.board, time.time(), cut_short, terminal_width(), colour, not session.explanation)


def _report(session: Session, settings: Settings, screen: Screen, lines: list[str]) -> None:
    for line in lines:
        (screen.note if settings.output else screen.result)(line)
    for line in session.explanation:
        screen.note(line)
    if (history := session.cluster.history) and (log_folder := history.log_folder_of_jobs(session.board.jobs)):
        screen.note(f"logs: {with_tilde(log_folder)}")
    jobs = list(session.board.jobs.values())
    if settings.output == "json":
        screen.result(encode(jobs).decode())
    elif settings.output == "yaml":
        screen.result(as_yaml(jobs).rstrip("\n"))


def _explanation_heading(facts: diagnosis.Facts, code: int) -> str:
    if code == UNAVAILABLE:
        return f"cannot run here: {facts.title}:"
    if not facts.has_ended:
        return f"why {facts.title} has not ended:"
    reason = str((facts.true_condition("Failed") or {}).get("reason") or "")
    return f"why {facts.title} failed ({reason}):" if reason else f"why {facts.title} failed:"


class Session:
    """Submits the objects, watches jobs, pods and events, and prints logs, progress and findings."""

    def __init__(self, cluster: LocalCluster, submission: Submission, screen: Screen) -> None:
        self.cluster = cluster
        self.screen = screen
        self.board = JobView()
        self.logs: LogFollowers
        self._submission = submission
        self._pods: Store[Json] = Store(dict_adapter(api_version="v1", kind="Pod"))
        self._deleted: dict[str, Json] = {}  # the last observed state of deleted pods, by uid
        self.tasks = TaskSupervisor("run", lambda text: self.screen.note(text))
        self._changed = asyncio.Event()
        self._board_changed = asyncio.Event()
        self._started = time.monotonic()
        self._warnings: set[str] = set()
        self._reported_findings: set[tuple[str, str, str]] = set()
        self.explanation: list[str] = []  # the findings about the jobs' end, printed last

    # --- submit and watch

    async def submit(self) -> None:
        """Creates all objects, jobs last, and starts the watches. Raises ManifestError for objects that the API server
        refuses."""
        self.logs = LogFollowers(self.cluster.api, self.screen, lambda pod: self.board.label(replica(pod)))
        for warning in self._submission.warnings:
            self.screen.note(f"warning: {warning}")
        for text in self._submission.notes:
            self.screen.note(f"note: {text}")
        for namespace in self._submission.namespaces:
            await self.cluster.namespace(namespace)
        for gvk, obj in self._submission.others:
            with contextlib.suppress(AlreadyExists):
                await self._create(gvk, "" if gvk == NAMESPACE else namespace_of(obj), obj)
        for kind, obj in self._submission.jobs:
            self.board.update_job(await self._create(kind.gvk, namespace_of(obj), obj))
        self._started = time.monotonic()
        self._start_watches()

    async def _create(self, gvk: GVK, namespace: str, obj: Json) -> Json:
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

    def _start_watches(self) -> None:
        gvks = {kind.gvk for kind, _ in self._submission.jobs}
        for gvk in gvks:
            store = Store(dict_adapter(api_version=gvk.api_version, kind=gvk.kind))
            self._watch(WatchTarget(gvk), store, self._handle_job)
        self._watch(WatchTarget(POD, selection=Selection(OWNER)), self._pods, self._handle_pod)
        self._watch(
            WatchTarget(EVENT, optional=True), Store(dict_adapter(api_version="v1", kind="Event")), self._handle_event
        )
        self.tasks.start("show progress", self._show_progress)
        self.tasks.start("explain what blocks", self._explain_blocks_periodically)

    def _watch(self, source: WatchTarget, store: Store[Json], seen: ChangeHandler) -> None:
        def apply(event: StoreEvent[Json]) -> None:
            for change in store.apply(event):
                seen(change.before, change.after)
            self._changed.set()
            self._board_changed.set()

        self.tasks.start(f"watch {source.name}", Reflector(self.cluster.api, source, store.adapter, apply).run)

    # --- watch handlers and findings

    def _handle_job(self, before: Json | None, after: Json | None) -> None:
        job = after or before
        if job is None or uid_of(job) not in self.board.jobs:
            return
        if after is not None:
            self.board.update_job(after, time.time())
        elif not job_result(job):
            self.board.deleted.add(uid_of(job))

    def _handle_pod(self, before: Json | None, after: Json | None) -> None:
        pod = after or before
        if pod is None or pod["metadata"]["labels"].get(OWNER) not in self.board.jobs:
            return
        self.board.update_pod(pod, time.time())
        if after is not None:
            self.logs.update_pod(after)
        else:
            self.logs.delete_pod(pod)
            self._deleted[uid_of(pod)] = pod

    def _handle_event(self, before: Json | None, after: Json | None) -> None:
        """Prints each warning event once, after EVENT_PAUSE seconds, and not at all if all jobs have ended by then: the
        findings about the end cover it."""
        if after is not None:
            self.board.update_event(after, time.time())
        if after is None or after.get("type") != "Warning" or after.get("reason") in REASONS_COVERED_BY_WHY:
            return
        involved_object = after.get("involvedObject") or {}
        message = after.get("message") or after.get("reason")
        text = f"warning: {involved_object.get('kind')} {involved_object.get('name')}: {message}"
        if text not in self._warnings:
            self._warnings.add(text)
            asyncio.get_running_loop().call_later(EVENT_PAUSE, self._warn, text)

    def _warn(self, text: str) -> None:
        if not self.explanation and not self.board.ended():
            self.screen.note(text)

    async def _show_progress(self) -> None:
        """Updates the progress line: on a terminal at least once a second, otherwise at most once a second."""
        while True:
            self._board_changed.clear()
            live = progress(self.board, time.monotonic() - self._started, time.time())
            self.screen.progress(live, progress(self.board, None))
            await asyncio.sleep(0.1 if self.screen.live else 1.0)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0 if self.screen.live else None):
                    await self._board_changed.wait()

    async def _explain_blocks_periodically(self) -> None:
        """Prints what blocks a job every QUIET seconds, so that a block that passes within that time is not printed."""
        while True:
            await asyncio.sleep(BLOCK_CHECK_SECONDS)
            await self._explain_blocks()

    async def _explain_blocks(self) -> None:
        """Prints the findings about what blocks the jobs, each finding once."""
        from trainyard.cli import diagnosis

        for job in list(self.board.jobs.values()):
            if job_result(job) or (facts := await self._gather_facts(job)) is None:
                continue
            unreported = self._unreported(
                job, [finding for finding in diagnosis.why(facts) if finding.level <= diagnosis.BLOCK]
            )
            for line in diagnosis.finding_lines(facts, unreported, MOST_LINES, terminal_width()) if unreported else ():
                self.screen.note(line)

    async def explain_end(self, code: int) -> None:
        """Appends the findings why the jobs failed, cannot run or have not ended to `explanation`. A failure's findings
        are all printed together, at the end."""
        from trainyard.cli import diagnosis

        for job in list(self.board.jobs.values()):
            if job_result(job) == "Succeeded" or (facts := await self._gather_facts(job)) is None:
                continue
            findings = diagnosis.why(facts)
            if not job_result(job) and code == TIMEOUT:
                findings = self._unreported(job, findings)
            findings = [
                replace(finding, evidence=self._without_recent_output(finding.evidence)) for finding in findings
            ]
            if findings:
                heading = _explanation_heading(facts, code)
                self.explanation += diagnosis.finding_lines(facts, findings, MOST_LINES, terminal_width(), heading)
        if code == UNAVAILABLE and not self.explanation:
            self.explanation.append(f"cannot run here: {self.board.blocked_reason(time.time())}")

    async def _gather_facts(self, job: Json) -> diagnosis.Facts | None:
        from trainyard.cli.evidence import gather_facts

        kind = kind_of(job)
        if kind is None:
            return None
        here = ClusterContext(self.cluster.api, namespace_of(job), ClusterAccess(self.cluster.server.tls_url))
        with contextlib.suppress(ApiError):
            return await gather_facts(here, JobInfo(kind, job), self._deleted.values())
        return None

    def _unreported(self, job: Json, findings: list[diagnosis.Finding]) -> list[diagnosis.Finding]:
        """The findings that have not been printed before."""
        keys = {(uid_of(job), finding.where, finding.fix): finding for finding in findings}
        unreported = [finding for key, finding in keys.items() if key not in self._reported_findings]
        self._reported_findings.update(keys)
        return unreported

    def _without_recent_output(self, evidence: tuple[str, ...]) -> tuple[str, ...]:
        """The evidence, or a reference to the lines above if the screen has just printed the same lines."""
        shown = {text for _, text in self.screen.recent}
        lines = [line for text in evidence for line in text.splitlines()][-MOST_LINES:]
        return ("its last lines, above",) if lines and all(line in shown for line in lines) else evidence

    async def wait_until_ended(self) -> None:
        """Waits until every job has ended, or until a job is blocked for good."""
        while not (self.board.ended() or self.board.blocked_reason(time.time())):
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REFERENCE_TIMEOUT if self.board.waiting else None):
                    await self._changed.wait()

    # --- stop

    async def wait_for_peers(self) -> None:
        """Waits at most SETTLING seconds until all pods have ended: the other replicas often end a moment after the one
        that decided the job's result. The table then has their own exit codes, not those of their deletion.

        The wait is short because some replicas, such as parameter servers, never end.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PEER_TIMEOUT):
                while any((pod.get("status") or {}).get("phase") in ("Pending", "Running") for pod in self._pods):
                    self._changed.clear()
                    await self._changed.wait()

    async def wind_down(self) -> None:
        """Stops the controllers, so that no pod is created any more, deletes all pods, waits until they have ended (for
        their grace period and SLACK), and prints their logs to the last line."""
        await self.cluster.stop_controllers()
        grace_period = 0.0
        for pod in self._pods:
            grace_period = max(grace_period, float(pod["spec"].get("terminationGracePeriodSeconds") or 30))
            with contextlib.suppress(ApiError):
                await self.cluster.api.delete(POD, namespace_of(pod), name_of(pod), uid_of(pod))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_period + DELETION_SLACK):
                while len(self._pods):
                    self._changed.clear()
                    await self._changed.wait()
        await self.logs.finish(False, LAST_LINES)

    def close(self) -> None:
        self.tasks.cancel_all()
