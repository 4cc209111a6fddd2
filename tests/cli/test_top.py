"""`trainyard top`: once, as JSON, on a terminal, and where figures are missing."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.commands import Answer, TrainyardCommands, commands_of_cluster, role, tfjob
from tests.kubectl.terminals import Running, _size
from tests.support.waiting import SLOW_PAUSE, until_async
from trainyard.cli import top
from trainyard.cli.top import Reading, reading_lines
from trainyard.objects.resources import ROLE, ROLE_BINDING, SERVICE_ACCOUNT
from trainyard.views.diagnosis import progress
from trainyard.views.usage_view import JobUsage, ReplicaUsage

pytestmark = pytest.mark.slow

STEPS = """
import itertools, time
for step in itertools.count(1):
    print(f'step={step} loss={1 / step:.4f}', flush=True)
    time.sleep(0.02)
"""
MIB = 1 << 20
ROLE_META = {"apiVersion": "rbac.authorization.k8s.io/v1"}


@pytest.fixture
async def trainyard(tmp_path: Path) -> AsyncIterator[TrainyardCommands]:
    async with commands_of_cluster(tmp_path) as commands:
        yield commands


async def test_the_replicas_of_a_job_and_the_jobs(trainyard: TrainyardCommands) -> None:
    await trainyard.submit(tfjob(role("MASTER", STEPS), role("WORKER", STEPS, 2)))
    figures = r"Running +\d[\d,]* +\d+\.\d\d +\d+m +\d+ MiB +\d+ MiB +local"
    answer = await until_top(trainyard, rf"(?s)(.*worker-\d +{figures}\n){{2}}", "mnist")
    head, *rows = answer.out.splitlines()
    assert answer.err == ""
    assert head.split() == ["REPLICA", "STATE", "STEP", "STEP/S", "CPU", "MEM", "PEAK", "NODE"]
    assert {row.split()[0] for row in rows} == {"master-0", "worker-0", "worker-1"}
    jobs = (await trainyard("top")).out.splitlines()
    assert jobs[0].split() == ["JOB", "KIND", "STATE", "RUNNING", "STEP", "STEP/S", "CPU", "MEM", "PEAK"]
    assert re.match(r"mnist +TfJob +Running +3/3 +[\d,]+ +\d+\.\d\d +\d+m +\d+ MiB +\d+ MiB$", jobs[1])

    shown = json.loads((await trainyard("top", "tfjob/mnist", "-o", "json")).out)
    assert (shown["job"], shown["missing"]) == ("tfjob/mnist", "")
    replica = shown["replicas"][0]
    assert replica["metrics"].keys() == {"step", "loss"} and replica["metricsSource"] == "pattern"
    assert replica["cpu"] < 2 and MIB < replica["memory"] <= replica["peakMemory"] < 200 * MIB
    assert [job["name"] for job in json.loads((await trainyard("top", "-A", "-o", "json")).out)["jobs"]] == ["mnist"]


HANGS = """
import threading, time
for step in range(60):
    print(f'step={step} loss=0.5', flush=True)
    time.sleep(0.1)
"""
WAITS, SLEEPS = f"{HANGS}threading.Event().wait()", f"{HANGS}time.sleep(600)"


async def test_every_command_says_of_a_job_that_hangs_since_when(
    trainyard: TrainyardCommands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "SHORTEST_SILENCE", 3.0)
    await trainyard.submit(tfjob(role("MASTER", WAITS), role("WORKER", SLEEPS)))
    words = r"no step for \d+s \(0\.\d+ s a step before\); all replicas wait, worker-0 sleeps"
    why = await until_async(
        lambda: trainyard("why", "mnist"),
        words,
        accept=lambda answer: re.search(words, _plain(answer)),
        pause=SLOW_PAUSE,
    )
    assert "fine" not in why.out and "py-spy dump --pid" in why.out
    for line in (("top", "mnist"), ("top",), ("get",)):
        assert re.search(f"(tfjob/mnist: )?(master|worker)-0.*: {words}", _plain(await trainyard(*line))), line
    shown = json.loads((await trainyard("top", "-o", "json")).out)
    assert "no step for" in shown["warnings"][0]


def _plain(answer: Answer) -> str:
    return " ".join((answer.out + answer.err).split())


async def until_top(trainyard: TrainyardCommands, pattern: str, *arguments: str) -> Answer:
    """Repeat `trainyard top` until its output matches."""
    return await until_async(
        lambda: trainyard("top", *arguments),
        f"{pattern!r} in `trainyard top {' '.join(arguments)}`",
        accept=lambda answer: re.search(pattern, answer.out),
        pause=SLOW_PAUSE,
    )


async def test_without_jobs_and_without_that_job(trainyard: TrainyardCommands) -> None:
    answer = await trainyard("top")
    assert (answer.code, answer.out, answer.err) == (0, "", "There are no jobs in namespace default.\n")
    answer = await trainyard("top", "mnist")
    assert answer.code == 1 and "there is no job mnist" in answer.err
    answer = await trainyard("top", "mnist", "-A")
    assert answer.code == 2 and "write -n NAMESPACE" in answer.err


async def test_a_cluster_without_metrics_says_what_to_install(trainyard: TrainyardCommands) -> None:
    registry = trainyard.cluster.server.registry
    for plural in ("pods", "nodes"):
        registry.remove("metrics.k8s.io", plural)
    await trainyard.submit(tfjob(role("MASTER", STEPS)))
    await trainyard.until("1/1", "get")
    # Steps are those of the log.
    answer = await until_top(trainyard, r"master-0 +Running +\d+ +- +- +- +- +local", "mnist")
    assert "does not serve metrics.k8s.io; install metrics-server" in " ".join(answer.err.split())
    shown = json.loads((await trainyard("top", "-o", "json")).out)
    assert "metrics-server" in shown["missing"] and shown["jobs"][0]["cpu"] is None


async def test_a_user_without_the_permission_reads_which_one_to_ask_for(trainyard: TrainyardCommands) -> None:
    api = trainyard.cluster.api
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
        {"apiGroups": ["tensorflow.org", "kubeflow.org", "elastic.pytorch.org", "mxnet.incubator.apache.org"],
         "resources": ["*"], "verbs": ["get", "list"]},
    ]  # fmt: skip
    meta = {"name": "viewer", "namespace": "default"}
    await api.create(ROLE, "default", {**ROLE_META, "kind": "Role", "metadata": meta, "rules": rules})
    binding = {
        **ROLE_META,
        "kind": "RoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "viewer"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
    }
    await api.create(ROLE_BINDING, "default", binding)
    await trainyard.submit(tfjob())
    await trainyard.until("1/1", "get")
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {"name": "default"}}
    created = await api.create(SERVICE_ACCOUNT, "default", {**request, "spec": {}}, "token")
    text = trainyard.kubeconfig.read_text().replace(trainyard.cluster.token, created["status"]["token"])
    trainyard.kubeconfig.write_text(text)
    answer = await trainyard("top", "tfjob/mnist")
    assert answer.code == 0 and "master-0" in answer.out
    printed = " ".join(answer.err.split())
    assert "you may not list pods of metrics.k8s.io in namespace default" in printed and "verbs: [list]" in printed
    assert "you may not get pods/log in namespace default" in printed
    answer = await trainyard("get", "tfjob/mnist")
    assert answer.code == 0 and answer.err == "no steps: you may not get pods/log in namespace default\n"
    answer = await trainyard("why", "tfjob/mnist")
    assert (
        answer.code == 0 and "You may not" in answer.err and "get pods/log: what depends on it is missing" in answer.err
    )


@contextmanager
def terminal(trainyard: TrainyardCommands, *arguments: str, rows: int = 24) -> Iterator[Running]:
    ours, theirs = os.openpty()
    _size(theirs, rows, 100)
    argv = [sys.executable, "-m", "trainyard", "top", "--kubeconfig", str(trainyard.kubeconfig), *arguments]
    env = {**os.environ, "TERM": "xterm", "PATH": os.environ["PATH"]}
    for name in ("NO_COLOR", "COLUMNS", "LINES"):
        env.pop(name, None)
    process = subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True)
    os.close(theirs)
    try:
        yield Running(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


@pytest.mark.parametrize(("end", "code"), [("q", 0), (signal.SIGINT, 130), (signal.SIGTERM, 0)])
async def test_a_terminal_is_drawn_anew_until_q_or_a_signal_and_then_is_as_before(
    trainyard: TrainyardCommands, end: str | signal.Signals, code: int
) -> None:
    await trainyard.submit(tfjob(role("MASTER", STEPS)))
    await until_top(trainyard, "master-0 +Running", "mnist")

    def look() -> int:
        with terminal(trainyard, "mnist") as screen:
            screen.read_until(r"\x1b\[\?1049h")
            screen.read_until(r"tfjob/mnist  \d\d:\d\d:\d\d  q ends")
            screen.read_until(r"\x1b\[H.*tfjob/mnist")  # the second time
            if isinstance(end, str):
                os.write(screen._fd, end.encode())
            else:
                screen.process.send_signal(end)
            screen.read_until(r"\x1b\[\?1049l")
            return screen.process.wait(10)

    assert await asyncio.to_thread(look) == code


def usage(number: int, step: float | None = None) -> ReplicaUsage:
    name = f"worker-{number}"
    return ReplicaUsage(name, "worker", "Running", f"pod-{number}", "laptop", step, None, number / 10, number * MIB)


def test_replicas_beyond_the_screen_are_one_line() -> None:
    replicas = tuple(usage(number, 14_000.0 + number) for number in range(1000))
    lines = reading_lines(Reading("tfjob/big", replicas, (), ""), 120, 20, colour=False)
    assert len(lines) == 20 and lines[2].startswith("worker-0 ") and lines[-2].startswith("worker-16 ")
    assert lines[-1] == (
        "and 983 more: min/median/max step 14,017/14,508/14,999, cpu 1700m/50800m/99900m, memory 17 MiB/508 MiB/999 MiB"
    )


@pytest.mark.parametrize(("count", "height", "rows"), [(3, 24, 3), (3, 5, 3), (3, 4, 1), (3, 1, 0), (0, 24, 0)])
def test_what_fits_is_shown_whole(count: int, height: int, rows: int) -> None:
    lines = reading_lines(Reading("tfjob/a", tuple(map(usage, range(count))), (), ""), 80, height, colour=False)
    assert sum(line.startswith("worker") for line in lines) == rows
    assert (f"and {count - rows} more" in lines[-1]) is (rows < count)


def test_what_is_missing_is_below_the_table() -> None:
    lines = reading_lines(Reading("tfjob/a", (usage(0),), (), "no CPU and memory: ask " + "x " * 60), 60, 10, False)
    assert lines[-3].startswith("no CPU and memory") and all(len(line) <= 60 for line in lines)


def test_no_text_of_a_cluster_controls_the_terminal() -> None:
    reading = Reading("tfjob/a\x1b[2J", (usage(0),), (), "metrics-server says \x1b[31m\r\n")
    assert "\x1b" not in "".join(reading_lines(reading, 80, 10, colour=False))


def test_jobs_of_several_namespaces_have_theirs() -> None:
    jobs = tuple(JobUsage(name, "TfJob", "mnist", "Running", 1, 1) for name in ("a", "b"))
    assert [row[0] for row in top._table(Reading("", None, jobs, ""))] == ["NAMESPACE", "a", "b"]
    assert top._table(Reading("", None, jobs[:1], ""))[0][0] == "JOB"
