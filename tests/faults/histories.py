"""Random histories of jobs under faults, each from a seed: one namespace, its jobs, two operator processes.

    async with cluster() as shared:                     one embedded API server, its controllers, a scripted kubelet
        result = await shared.history(seed)             faults for a while, then peace, until every job has ended
        assert not result.violations

Rules for this file:
- The operators are real processes; each reaches the API server through a proxy of its own. Users, the kubelet and the
  workload controllers reach it directly.
- What is checked is what the API server has stored (its log) and what the proxies have let through (the journal).
- After `FAULT_SECONDS` nothing is injected any more and one operator at least runs: every job must reach its end.
- On a loaded machine everything takes longer. So no time limits that: a history is stuck when a leader has renewed its
  lease so many times in a row without a write to the namespace, or when there were too many writes.
"""

from __future__ import annotations

import asyncio
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from tests.faults.history_jobs import BUILDERS, KINDS, RESTARTS, ended, is_over, new_job, suspended
from tests.faults.invariants import Ends, check
from tests.faults.operator_process import Process
from tests.faults.operators import Zygote, alive, jumping
from tests.faults.proxy import Journal, Pause, Proxy, Rates, Write
from tests.faults.scripted_kubelet import Kubelet, Script
from trainyard import kinds
from trainyard.app.install.installed_kinds import install_kinds
from trainyard.client import ApiClient, ApiError
from trainyard.objects import labels_of, name_of, uid_of
from trainyard.objects.labels import OWNER
from trainyard.objects.resources import NAMESPACE, NODE, POD
from trainyard.server import Server
from trainyard.server.http.limits import Limits
from trainyard.server.model.store import LogEntry
from trainyard.server.storage.log import RevisionLog
from trainyard.workloads import ControllerManager

FAULT_SECONDS = 4.5
JOBS = 4  # in a history
LEASE_SECONDS = 3
LONGER_THAN_LEASE = LEASE_SECONDS + 0.7
LEASES = "leases.coordination.k8s.io"  # their storage key
QUIET_RENEWALS = (
    60  # of one leader in a row, 0.75 s each; a replica that failed waits ten seconds, a pod may take twelve
)
MAX_WRITES = 2000  # after the last fault: ten times as many as any history needs
HANG_SECONDS = 300.0  # without any write, of a lease neither: operators that do not even compete


@dataclass(slots=True)
class Result:
    seed: int
    violations: list[str]
    faults: Counter[str]
    takeovers: int
    writes: list[Write]
    log: str = ""


class Cluster:
    """What histories share."""

    def __init__(self, server: Server, api: ApiClient, kubelet: Kubelet, zygote: Zygote, folder: Path) -> None:
        self.server, self.api, self.kubelet, self.zygote, self.folder = server, api, kubelet, zygote, folder
        self.shift = 0.0  # of the operators' wall clocks
        self.entries: dict[str, list[LogEntry]] = {}  # by namespace, in the order of the log
        server.log.follow(self._wrote, committed=True)

    def _wrote(self, entry: LogEntry) -> None:
        self.entries.setdefault(entry.key.namespace, []).append(entry)

    async def history(
        self, seed: int, mutant: str = "", kind: str = "", renewals: int = QUIET_RENEWALS, failing: bool = True
    ) -> Result:
        """One history.

        `kind` is that of its jobs, else the seed's. `renewals`: of the lease, without another write, until a job that
        has not ended is stuck. `failing`: pods may fail, after which a replica waits ten seconds for its next attempt.
        """
        chance = random.Random(seed)
        kind = kind or list(BUILDERS)[seed % len(BUILDERS)]
        namespace = f"history-{seed}-{mutant.replace('_', '-')}".rstrip("-")
        folder = self.folder / namespace
        folder.mkdir()
        await self.api.create(NAMESPACE, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        journal, rates = Journal(), Rates(chance.choice((0.05, 0.15, 0.3)), chance.choice((0.02, 0.1, 0.2)))
        async with aiohttp.ClientSession(auto_decompress=False, read_bufsize=1 << 20) as session:

            def connect(name: str) -> Proxy:
                return Proxy(name, lambda: self.server.url, session, journal, rates, random.Random(f"{seed} {name}"))

            served = kinds.unique_name(KINDS[kind])
            other_kind = chance.choice([name for name in BUILDERS if name != kind])
            other = f"{served},{kinds.unique_name(KINDS[other_kind])}"
            second = other if chance.random() < 0.4 else served  # another lease, which overlaps
            argv = ["--namespace", namespace]
            argv += ["--leader-elect", "--lease-duration", str(LEASE_SECONDS), "--lease-namespace", namespace]
            processes = [
                Process(name, folder, [*argv, "--kinds", served_kinds], connect, self.zygote, mutant, self.shift)
                for name, served_kinds in (("first", served), ("second", second))
            ]
            try:
                await self._live(chance, kind, namespace, processes, journal, rates, failing)
                ends = await self._ends(kind, namespace, processes, journal, renewals)
            finally:
                for process in processes:
                    process.signal(signal.SIGKILL)
                for proxy in (proxy for process in processes for proxy in process.lives):
                    await proxy.stop()
        violations = [*journal.violations, *check(self.entries.pop(namespace, []), journal.writes, ends)]
        log = "".join(path.read_text() for path in sorted(folder.glob("*.log")))
        return Result(seed, violations, journal.faults, journal.takeovers, journal.writes, log)

    async def _live(
        self,
        chance: random.Random,
        kind: str,
        namespace: str,
        processes: list[Process],
        journal: Journal,
        rates: Rates,
        failing: bool,
    ) -> None:
        """Users and faults, for a while. Afterwards both operators run, and nothing is injected any more."""
        await processes[0].start()
        if chance.random() < 0.7:
            await processes[1].start()
        users = [asyncio.create_task(self._user(chance, kind, namespace, number, failing)) for number in range(JOBS)]
        try:
            await _harm(chance, processes, journal)
        finally:
            rates.request = rates.line = 0.0
            for process in processes:
                process.heal()
                process.signal(signal.SIGCONT)
            await asyncio.gather(*users)
        for process in processes:
            if not process.pid or not alive(process.pid):
                await process.start()

    async def _user(self, chance: random.Random, kind: str, namespace: str, number: int, failing: bool) -> None:
        """Creates a job, and does to it what users do."""
        chance = random.Random(chance.random())
        gvk = KINDS[kind].gvk
        name = f"job{number}"
        fails = chance.choice((0, 0, 1, 2)) if kind in RESTARTS and failing else 0
        # Longer than the pause before a new attempt, now and then: then it begins while old pods still terminate.
        grace = 12.0 if fails and chance.random() < 0.3 else chance.choice((0.0, 0.3, 1.5))
        self.kubelet.scripts[namespace, name] = Script(
            fails, chance.choice((137, 143)), chance.uniform(0.05, 1.5), grace
        )
        await asyncio.sleep(chance.uniform(0.0, FAULT_SECONDS if number else 0.5))
        job = new_job(kind, name)
        await self.api.create(gvk, namespace, job)
        action = chance.choice(("", "", "suspend", "delete", "recreate", "evict", "evict"))
        await asyncio.sleep(chance.uniform(0.0, 1.5))
        with suppress(ApiError):
            if action == "suspend":
                await self.api.patch(gvk, namespace, name, suspended(kind, True))
                await asyncio.sleep(chance.uniform(0.2, 1.5))
                await self.api.patch(gvk, namespace, name, suspended(kind, False))
            elif action in ("delete", "recreate"):
                await self.api.delete(gvk, namespace, name)
                if action == "delete":
                    return
                await self.api.create(gvk, namespace, job)
            elif action == "evict":
                pods = (await self.api.list(POD, namespace))["items"]
                for pod in pods[:1]:
                    await self.api.delete(POD, namespace, name_of(pod), uid=uid_of(pod))

    async def _ends(self, kind: str, namespace: str, processes: list[Process], journal: Journal, renewals: int) -> Ends:
        """Wait until every job that was not deleted has ended, and nothing of deleted ones is left; or until nothing
        moves any more."""
        gvk, entries, writes = KINDS[kind].gvk, self.entries[namespace], 0
        read, until = len(entries), time.monotonic() + HANG_SECONDS
        while True:
            new, read = entries[read:], len(entries)
            if new:
                until = time.monotonic() + HANG_SECONDS
            if new_writes := sum(entry.store != LEASES for entry in new):
                writes += new_writes
                journal.renewals.clear()
            jobs = (await self.api.list(gvk, namespace))["items"]
            pods = (await self.api.list(POD, namespace))["items"]
            uids = {uid_of(job) for job in jobs}
            left = [pod for pod in pods if not is_over(pod) and labels_of(pod).get(OWNER) not in uids]
            if all(map(ended, jobs)) and not left:
                return Ends({name_of(job): ended(job) for job in jobs}, [])
            quiet = max(journal.renewals.values(), default=0)
            running = sum(alive(process.pid) for process in processes)
            if not running or quiet >= renewals or writes > MAX_WRITES or time.monotonic() > until:
                break
            await asyncio.sleep(0.1)
        stuck = [f"{name_of(job)}: {job.get('status')}" for job in jobs if not ended(job)]
        phases = [f"{name_of(pod)}: {pod.get('status', {}).get('phase')}" for pod in pods]
        since = f"{running} operators run, {writes} writes since the last fault, {quiet} renewals since the last write"
        logs = [f"{path.name}: {path.read_text()[-3000:]}" for path in sorted((self.folder / namespace).glob("*.log"))]
        return Ends({}, [f"ends reached: {since}: jobs {stuck}, pods {phases}", *logs])


async def _harm(chance: random.Random, processes: list[Process], journal: Journal) -> None:
    """kill -9, SIGSTOP, SIGTERM, partitions and second faults in the middle of another one, one after the other; mostly
    of the leader."""
    until = asyncio.get_running_loop().time() + FAULT_SECONDS
    while (now := asyncio.get_running_loop().time()) < until:
        await asyncio.sleep(min(chance.uniform(0.2, 1.0), until - now))
        leaders = [process for process in processes if journal.leads(process.operator)]
        process = chance.choice(leaders if leaders and chance.random() < 0.7 else processes)
        match chance.choice(("kill", "kill", "stop", "stop", "partition", "partition", "end", "end", "fence", "503")):
            case "kill":
                process.signal(signal.SIGKILL)
                if chance.random() < 0.6:
                    await process.start()
            case "end":
                await _end(chance, process, journal)
            case "stop":
                await _stop(process, chance.choice((0.3, LONGER_THAN_LEASE)))
            case "partition":
                process.partition()
                await asyncio.sleep(chance.choice((0.3, LONGER_THAN_LEASE)))
                process.heal()
            case "fence":
                await _lose_lease_after_fence(process, journal)
            case "503":
                await _refuse_after_delete(chance, process, journal)
        for process in processes:
            if process.pid and not alive(process.pid) and chance.random() < 0.5:
                await process.start()


async def _end(chance: random.Random, process: Process, journal: Journal) -> None:
    """SIGTERM, and mostly another signal while the operator stops and gives back its lease."""
    process.signal(signal.SIGTERM)
    second = chance.choice(("", "terminated", "killed", "stopped"))
    await asyncio.sleep(chance.uniform(0.0, 0.05))
    if not second or not alive(process.pid):
        return
    journal.injected(f"{second} while it stops")
    match second:
        case "terminated":
            process.signal(signal.SIGTERM)
        case "killed":
            process.signal(signal.SIGKILL)
        case "stopped":
            await _stop(process, LONGER_THAN_LEASE)


async def _stop(process: Process, seconds: float) -> None:
    process.signal(signal.SIGSTOP)
    await asyncio.sleep(seconds)
    process.signal(signal.SIGCONT)


async def _lose_lease_after_fence(process: Process, journal: Journal) -> None:
    """The status of a job is written, and the operator hears of it when another may have its lease."""
    async with _paused(process, "PATCH") as pause:
        if pause is not None:
            journal.injected("lease lost after a fence")
            process.signal(signal.SIGSTOP)
            pause.ended.set()
            await asyncio.sleep(LONGER_THAN_LEASE)
            process.signal(signal.SIGCONT)


async def _refuse_after_delete(chance: random.Random, process: Process, journal: Journal) -> None:
    """503 to every write after the first delete, as of a gang that restarts."""
    async with _paused(process, "DELETE") as pause:
        if pause is not None:
            journal.injected("503 after a delete")
            proxy = process.lives[-1]
            proxy.refuses_writes = True
            pause.ended.set()
            await asyncio.sleep(chance.uniform(0.3, 2.0))
            proxy.refuses_writes = False


@asynccontextmanager
async def _paused(process: Process, method: str) -> AsyncIterator[Pause | None]:
    """In the middle of a write of that method; None when none comes."""
    if not process.lives:
        yield None
        return
    proxy, pause = process.lives[-1], Pause(method)
    proxy.pause = pause
    try:
        async with asyncio.timeout(1.0):
            await pause.began.wait()
    except TimeoutError:
        proxy.pause = None
    try:
        yield pause if pause.began.is_set() else None
    finally:
        pause.ended.set()


@asynccontextmanager
async def cluster(shift: float = 0.0) -> AsyncIterator[Cluster]:
    """An API server with the definitions of every kind, the workload controllers, and a scripted kubelet.

    `shift`: seconds by which the wall clocks of server, kubelet and operators jump back and forth.
    """
    clock = jumping(shift) if shift else time.time
    server = Server(now=clock, log=RevisionLog(keep=1_000_000), limits=Limits(max_connections=4000))
    zygote = Zygote()
    try:
        await server.start()
        with tempfile.TemporaryDirectory() as folder:
            async with ApiClient(server.url) as api, ApiClient(server.url) as second, ApiClient(server.url) as third:
                await install_kinds(api, kinds.ALL)
                await api.create(NODE, "", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "scripted"}})
                ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
                await api.patch(NODE, "", "scripted", ready, "status")
                workloads, kubelet = ControllerManager(second), Kubelet(third, clock)
                await workloads.start()
                await kubelet.loop.start()
                try:
                    shared = Cluster(server, api, kubelet, zygote, Path(folder))
                    shared.shift = shift
                    yield shared
                finally:
                    await kubelet.loop.stop()
                    await workloads.stop()
    finally:
        await server.stop()
        zygote.close()


async def run(seeds: Iterable[int], width: int = 16, shift: float = 0.0) -> list[Result]:
    """These histories, `width` of them at a time. `shift`: seconds by which the wall clocks jump."""
    gate = asyncio.Semaphore(width)
    async with cluster(shift) as shared:

        async def bounded(seed: int) -> Result:
            async with gate:
                return await shared.history(seed)

        return await asyncio.gather(*map(bounded, seeds))
