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
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from trainyard.app.background.cluster_folders import BackgroundError
from trainyard.app.history.records import GIVEN_UP, history_folder, with_tilde
from trainyard.app.local import LocalCluster, LocalClusterOptions
from trainyard.cli.command.codes import FAILED, INTERRUPTED, READER_GONE, SUCCEEDED, TIMEOUT, UNAVAILABLE
from trainyard.cli.command.signals import StopSignals
from trainyard.cli.output.job_lines import progress, table
from trainyard.cli.output.layout import terminal_width
from trainyard.cli.output.screen import Screen
from trainyard.cli.session.explainer import Explainer
from trainyard.cli.session.job_watch import JobWatch, exit_code
from trainyard.cli.session.submission import Submission, create_objects
from trainyard.client import ApiError
from trainyard.controller_runtime import TaskSupervisor
from trainyard.controller_runtime.reflector import WatchTarget
from trainyard.kinds import kind_of
from trainyard.node.kubelet.node import NodeError
from trainyard.objects import Json, encode, name_of, namespace_of, uid_of
from trainyard.objects.printable import printable
from trainyard.objects.resources import EVENT, POD
from trainyard.objects.yaml_text import as_yaml
from trainyard.views.job_view import JobView, job_result
from trainyard.views.replica_view import REFERENCE_TIMEOUT
from trainyard.views.stopping import unresponsive_text

if TYPE_CHECKING:  # imported at run time only when a page server is started, or a finding is printed
    from trainyard.page.running_servers import RegisteredServer
    from trainyard.views import diagnosis

log = logging.getLogger(__name__)

CANNOT_RUN = (OSError, ApiError, NodeError)
_INTERRUPTION_TEXTS = {
    UNAVAILABLE: GIVEN_UP,
    TIMEOUT: "stopped by --timeout",
    INTERRUPTED: "interrupted",
    READER_GONE: "interrupted",
}
# Reasons of events without a warning of their own: the findings of `why` cover them, with the fix, or the node of this
# process has printed them.
REASONS_WITHOUT_WARNING = frozenset(
    {"Failed", "FailedCreate", "FailedScheduling", "FailedMount", "BackOff", "OutputLost", "KilledAfterGracePeriod"}
)
EVENT_PAUSE = 1.0  # seconds from an event to its warning
BLOCK_CHECK_SECONDS = 15.0  # seconds between two checks for causes that block a job
PEER_TIMEOUT = 1.0  # seconds in which the other pods may end by themselves after a job's end
NOTICE_PAUSE = 0.5  # seconds between two looks at the pods that do not stop
DELETION_SLACK = 10.0  # seconds after the grace period; pods that still run then are left to LocalCluster.stop


class Settings(msgspec.Struct, frozen=True):
    """The command line options about the run itself. `timeout` is in seconds."""

    timeout: float | None = None
    keep: bool = False
    output: str = ""
    has_page: bool = False  # the page of `trainyard ui`


async def run(
    submission: Submission, options: LocalClusterOptions, settings: Settings, screen: Screen, stop: StopSignals
) -> int:
    """Run the jobs of `submission` in a new cluster and stop the cluster. Returns the exit code.

    Raises ManifestError for objects that the API server refuses, and the exceptions of CANNOT_RUN when the cluster
    cannot run on this machine."""
    cluster = LocalCluster(options)
    session = Session(cluster, submission, screen)
    page_server: RegisteredServer | None = None
    try:
        if not await stop.run_unless(stop.first, cluster.start(session.submit)):
            return _interruption_code(stop, screen)
        page_server = await _serve_page(cluster, options.mounts) if settings.has_page else None
        return await _run_to_end(session, settings, screen, stop)
    finally:
        session.close()
        if page_server is not None:
            await page_server.stop("`trainyard run` has ended; `trainyard ui --history` shows it")
        if stop.second.is_set() or not await stop.run_unless(stop.second, cluster.stop()):
            await cluster.stop(kill=True)


async def _serve_page(cluster: LocalCluster, mounts: Mapping[str, Path]) -> RegisteredServer | None:
    """The page of this run, by which commands find its cluster, too; None if it cannot be opened, which stops nothing
    else."""
    from trainyard.page.listener import local_page_server
    from trainyard.page.options import ClaimFolders, PageOptions
    from trainyard.page.running_servers import RUN_PREFIX, RegisteredServer

    claims = ClaimFolders(cluster.folder / "claims", mounts)
    options = PageOptions("run", history=history_folder(), claims=claims)
    name, kubeconfig = f"{RUN_PREFIX}{os.getpid()}", cluster.write_kubeconfig()
    page_server = RegisteredServer(name, local_page_server(cluster, options), kubeconfig=kubeconfig)
    try:
        await page_server.start()
    except (OSError, BackgroundError) as error:
        log.warning("there is no page for `trainyard ui` error=%s", error)
        return None
    return page_server


async def _run_to_end(session: Session, settings: Settings, screen: Screen, stop: StopSignals) -> int:
    code = await _wait_for_exit_code(session, settings, stop)
    session.cluster.interruption = _INTERRUPTION_TEXTS.get(code, "")
    if code == UNAVAILABLE and (blocked_text := session.blocked_reason()):
        session.cluster.interruption += f": {blocked_text}"
    if code in (SUCCEEDED, FAILED):  # other replicas that end for the same reason end a moment later
        await stop.run_unless(stop.first, session.wait_for_peers())
    if not stop.first.is_set():
        await stop.run_unless(stop.first, session.watch.logs.finish(ended_pods_only=True))
    if code != INTERRUPTED and not stop.first.is_set():
        await stop.run_unless(stop.first, session.explain_end(code))
        code = FAILED if code == SUCCEEDED and session.in_doubt else code
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
    was_stopping = session.is_stopping()
    await stop.run_unless(stop.second, session.wind_down())
    if code in _INTERRUPTION_TEXTS or was_stopping:  # the table has the exit codes and times of pods that ended now
        lines = _table(session, settings, screen, _INTERRUPTION_TEXTS.get(code, ""))
    _report(session, settings, screen, lines)
    return code


async def _wait_for_exit_code(session: Session, settings: Settings, stop: StopSignals) -> int:
    try:
        async with asyncio.timeout(settings.timeout):
            if not await stop.run_unless(stop.first, session.wait_until_ended()):
                return _interruption_code(stop, session.screen)
    except TimeoutError:
        jobs = ", ".join(f"{job['kind']} {name_of(job)}" for job in session.view.jobs.values() if not job_result(job))
        session.screen.note(f"not ended within --timeout {settings.timeout:g}: {jobs}; the pods are stopped")
        return TIMEOUT
    if session.blocked_reason():
        return UNAVAILABLE
    return exit_code(session.view.jobs.values())


def _interruption_code(stop: StopSignals, screen: Screen) -> int:
    if screen.output_error is not None:
        return UNAVAILABLE
    return READER_GONE if stop.reader_gone else INTERRUPTED


def _table(session: Session, settings: Settings, screen: Screen, cut_short: str) -> list[str]:
    """The table of replicas and a line for each job, without the reason if the explanation has it."""
    colour = screen.colour_notes if settings.output else screen.colour_result
    width = terminal_width(2 if settings.output else 1)
    return table(session.view, time.time(), cut_short, width, colour, not session.explainer.explanation)


def _report(session: Session, settings: Settings, screen: Screen, lines: list[str]) -> None:
    for line in lines:
        (screen.note if settings.output else screen.result)(line)
    for line in session.explainer.explanation:
        screen.note(line)
    if (history := session.cluster.history) and (log_folder := history.log_folder_of_jobs(session.view.jobs)):
        screen.note(f"logs: {with_tilde(log_folder)}")
    jobs = list(session.view.jobs.values())
    if settings.output == "json":
        screen.result(encode(jobs).decode())
    elif settings.output == "yaml":
        screen.result(as_yaml(jobs).rstrip("\n"))


class Session:
    """Submits the objects, watches jobs, pods and events, and prints logs, progress and findings."""

    def __init__(self, cluster: LocalCluster, submission: Submission, screen: Screen) -> None:
        self.cluster = cluster
        self.screen = screen
        self.view = JobView()
        self.watch: JobWatch
        self.tasks = TaskSupervisor("run", lambda text: self.screen.note(text))
        self.explainer = Explainer(screen, self._gather_facts)
        self.in_doubt = False  # whether the success of a job is in doubt
        self._submission = submission
        self._started = time.monotonic()
        self._warnings: set[str] = set()

    # --- submit and watch

    async def submit(self) -> None:
        """Create all objects, jobs last, and start the watches. Raises ManifestError for objects that the API server
        refuses, and before that for jobs that cannot run in the network of the node."""
        if any(kind.api.own_network for kind, _ in self._submission.jobs):  # others need not wait
            self._submission.check_network(await self.cluster.chosen_network())
        for text in self._submission.messages():
            self.screen.note(text)
        for namespace in self._submission.namespaces:
            await self.cluster.namespace(namespace)
        for _, job in await create_objects(self.cluster.api, self._submission):
            self.view.update_job(job)
        self._started = time.monotonic()
        self.watch = JobWatch(self.cluster.api, self.screen, self.view, patience=float("inf"), tasks=self.tasks)
        self.watch.start((kind.gvk, "") for kind, _ in self._submission.jobs)
        self.watch.watches.watch(WatchTarget(EVENT, optional=True), self._handle_event)
        self.tasks.start("show progress", self._show_progress)
        self.tasks.start("explain what blocks", self._explain_blocks)

    def _handle_event(self, before: Json | None, after: Json | None) -> None:
        """Print each warning event once, after EVENT_PAUSE seconds, and not at all if all jobs have ended by then: the
        findings about the end cover it."""
        if after is not None:
            self.view.update_event(after, time.time())
        if after is None or after.get("type") != "Warning" or after.get("reason") in REASONS_WITHOUT_WARNING:
            return
        text = warning_of(after)
        if text not in self._warnings:
            self._warnings.add(text)
            asyncio.get_running_loop().call_later(EVENT_PAUSE, self._warn, text)

    def _warn(self, text: str) -> None:
        if not self.explainer.explanation and not self.watch.all_ended():
            self.screen.note(text)

    async def _show_progress(self) -> None:
        """Update the progress line: on a terminal at least once a second, otherwise at most once a second."""
        while True:
            self.watch.view_changed.clear()
            live = progress(self.view, time.monotonic() - self._started, time.time())
            self.screen.progress(live, progress(self.view, None))
            await asyncio.sleep(0.1 if self.screen.live else 1.0)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0 if self.screen.live else None):
                    await self.watch.view_changed.wait()

    async def _explain_blocks(self) -> None:
        """Print what blocks a job every BLOCK_CHECK_SECONDS, so that a block that passes within that time is not
        printed."""
        while True:
            await asyncio.sleep(BLOCK_CHECK_SECONDS)
            await self.explainer.explain_blocks(self.view.jobs.values())

    async def _gather_facts(self, job: Json) -> diagnosis.Facts | None:
        from trainyard.app.evidence.facts import gather_facts

        kind = kind_of(job)
        if kind is None:
            return None
        with contextlib.suppress(ApiError):
            return await gather_facts(self.cluster.api, kind, job, self.watch.deleted_pods.values())
        return None

    async def explain_end(self, code: int) -> None:
        """Work out what is to be said about the end of the jobs."""
        self.in_doubt = await self.explainer.explain_end(self.view, code)

    def blocked_reason(self) -> str:
        """Why a job never runs on this machine; "" when none is blocked."""
        return self.view.blocked_reason(time.time())

    async def wait_until_ended(self) -> None:
        """Wait until every job has ended, or until a job is blocked for good."""
        await self.watch.wait_until(
            lambda: self.watch.all_ended() or bool(self.blocked_reason()),
            lambda: REFERENCE_TIMEOUT if self.view.waiting else None,
        )
        if self.watch.all_ended():
            await self.watch.wait_until_pods_current()

    # --- stop

    async def wait_for_peers(self) -> None:
        """Wait at most PEER_TIMEOUT seconds until all pods have ended: the other replicas often end a moment after the
        one that decided the job's result. The table then has their own exit codes, not those of their deletion.

        The wait is short because some replicas, such as parameter servers, never end.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PEER_TIMEOUT):
                await self.watch.wait_until(lambda: not any(map(_is_active, self.watch.pods)))

    async def wind_down(self) -> None:
        """Stop the controllers, so that no pod is created any more, delete all pods, wait until they have ended (for
        their grace period and DELETION_SLACK), and print their logs to the last line."""
        await self.cluster.stop_controllers()
        pods, grace_period = self.watch.pods, 0.0
        for pod in pods:
            grace_period = max(grace_period, float(pod["spec"].get("terminationGracePeriodSeconds") or 30))
            with contextlib.suppress(ApiError):
                await self.cluster.api.delete(POD, namespace_of(pod), name_of(pod), uid_of(pod))
        self.tasks.spawn("name those who do not stop", self._note_unresponsive())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_period + DELETION_SLACK):
                await self.watch.wait_until(lambda: not len(pods))
        await self.watch.logs.finish(ended_pods_only=False)

    async def _note_unresponsive(self) -> None:
        """Print once which replicas do not react to SIGTERM."""
        while len(self.watch.pods):
            if text := unresponsive_text(self.watch.pods, time.time()):
                self.screen.note(text)
                return
            await asyncio.sleep(NOTICE_PAUSE)

    def is_stopping(self) -> bool:
        """Whether replicas are being stopped, whose end is not known yet."""
        return any(slot.state == "Terminating" for uid in self.view.jobs for slot in self.view.slots(uid))

    def close(self) -> None:
        """Cancel the tasks without waiting for them."""
        self.tasks.cancel_all()


def warning_of(event: Json) -> str:
    """The line for a Warning event. Its message may be output of a program (of a probe): it stays one line, and has no
    effect on the terminal."""
    involved_object = event.get("involvedObject") or {}
    message = " ".join(str(event.get("message") or event.get("reason")).split())
    return printable(f"warning: {involved_object.get('kind')} {involved_object.get('name')}: {message}", line=True)


def _is_active(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Pending", "Running")
