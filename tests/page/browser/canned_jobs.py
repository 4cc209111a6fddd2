"""Jobs for the canned server."""

from __future__ import annotations

import time
from typing import Any

from tests.page.browser.canned_server import CannedServer

MARKUP = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>"
BERT, RESNET = "b0000000-0000-4000-8000-000000000001", "a0000000-0000-4000-8000-000000000002"


def rank_columns(states: list[str], role: str = "worker", **columns: list[Any]) -> dict[str, list[Any]]:
    """The columns of ranks in these states; the first is a master."""
    roles = ["master", *[role] * (len(states) - 1)]
    indices = ["0", *(str(number) for number in range(len(states) - 1))]
    count, started = len(states), time.time() - 280
    defaults: dict[str, list[Any]] = {
        "replica": [f"{role}-{index}" for role, index in zip(roles, indices, strict=True)],
        "role": roles,
        "index": indices,
        "state": states,
        "restarts": [0] * count,
        "attempt": [1] * count,
        "node": ["laptop"] * count,
        "reason": [""] * count,
        "message": [""] * count,
        "exitCode": [None] * count,
        "pod": [f"job-{role}-{index}" for role, index in zip(roles, indices, strict=True)],
        "started": [started] * count,
        "ended": [None] * count,
    }
    return defaults | columns


def segment(
    phase: str, start: float, end: float | None, exit_code: int | None = None, reason: str = ""
) -> dict[str, Any]:
    return {"phase": phase, "start": start, "end": end, "exitCode": exit_code, "reason": reason}


def lane(replica: str, *segments: dict[str, Any], attempt: int = 1) -> dict[str, Any]:
    role, _, index = replica.rpartition("-")
    names = {"replica": replica, "role": role, "index": index, "attempt": attempt, "pod": f"job-{replica}"}
    return names | {"uid": f"{replica}-{attempt}", "node": "laptop", "segments": list(segments)}


def running_lanes(replicas: list[str]) -> list[dict[str, Any]]:
    start = time.time() - 300
    return [
        lane(
            replica,
            segment("pending", start, start + 4),
            segment("starting", start + 4, start + 20 + number % 7),
            segment("running", start + 20 + number % 7, None),
        )
        for number, replica in enumerate(replicas)
    ]


def add_quiet(server: CannedServer, start: float) -> str:
    """A job of two ranks that has run for three hours, of which all but some minutes without a change. `start`: Unix
    seconds."""
    end = start + 10_800
    uid = server.add_job(uid="q1", name="quiet", state="Failed", replicas=2, running=0, started=start, ended=end)
    begin = [segment("pending", start, start + 60), segment("starting", start + 60, start + 180)]
    lanes = [
        lane("master-0", *begin, segment("running", start + 180, end, 0, "Completed")),
        lane("worker-0", *begin, segment("running", start + 180, end - 60, 1, "Error")),
    ]
    ranks = rank_columns(["Succeeded", "Failed"], exitCode=[0, 1], ended=[end] * 2)
    server.job_frames[uid] = job_frames(uid, ranks, [], lanes, [])
    return uid


def event(
    seconds_ago: float, reason: str, message: str, object_name: str, type_: str = "Normal", count: int = 1
) -> dict[str, Any]:
    source = {"source": "trainyard", "time": time.time() - seconds_ago, "object": object_name, "count": count}
    return source | {"type": type_, "reason": reason, "message": message}


def job_frames(
    uid: str,
    ranks: dict[str, list[Any]],
    findings: list[dict[str, Any]],
    lanes: list[dict[str, Any]],
    events: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    return [
        {"type": "ranks", "uid": uid, "columns": ranks},
        {"type": "job", "uid": uid, "job": {}, "findings": findings, "timeline": lanes},
        {"type": "events", "uid": uid, "events": events},
    ]


def finding(level: str, what: str, where: str = "", evidence: list[str] | None = None, fix: str = "") -> dict[str, Any]:
    return {"level": level, "what": what, "where": where, "evidence": evidence or [], "fix": fix}


def add_bert(server: CannedServer) -> str:
    """A failed job of four ranks, with a log of each."""
    uid = server.add_job(
        uid=BERT,
        name="bert",
        state="Failed",
        running=0,
        replicas=4,
        restarts=2,
        ended=time.time() - 20,
        message="worker-1: exit 1, ModuleNotFoundError: No module named 'nltk'",
    )
    server.progress[uid] = [uid, 881.0, None, "", ""]
    start = time.time() - 300
    ranks = rank_columns(
        ["Succeeded", "Succeeded", "Failed", "Succeeded"],
        restarts=[0, 0, 2, 0],
        exitCode=[0, 0, 1, 0],
        reason=["Completed", "Completed", "Error", "Completed"],
    )
    ends = [segment("running", start + 8, start + 270, 0, "Completed")]
    crashes = [
        segment("running", start + 9, start + 60, 137, "OOMKilled"),
        segment("waiting", start + 60, start + 70),
        segment("running", start + 70, start + 150, 1, "Error"),
        segment("waiting", start + 150, start + 170),
        segment("running", start + 170, start + 275, 1, "Error"),
    ]
    begin = [segment("pending", start, start + 3), segment("starting", start + 3, start + 8)]
    lanes = [
        lane("master-0", *begin, *ends),
        lane("worker-0", *begin, *ends),
        lane("worker-1", *begin, *crashes),
        lane("worker-2", *begin, *ends),
    ]
    evidence = [
        "Traceback (most recent call last):",
        '  File "train.py", line 7, in <module>',
        "ModuleNotFoundError: No module named 'nltk'",
    ]
    findings = [
        finding(
            "problem",
            "worker-1 has failed: the module nltk is not in its environment",
            "pod default/bert-worker-1, its log",
            evidence,
            "add nltk to the image, or run `pip install nltk` before the program",
        ),
        finding(
            "note",
            "worker-1 was killed once for lack of memory (exit 137)",
            "pod default/bert-worker-1, status.containerStatuses",
            [],
            "raise resources.limits.memory",
        ),
    ]
    events = [
        event(290, "JobCreated", "PyTorchJob bert is created.", "PyTorchJob/bert"),
        event(280, "Started", "Started container pytorch", "Pod/job-worker-1", count=3),
        event(230, "OOMKilling", "Container pytorch used more than its limit", "Pod/job-worker-1", "Warning"),
        event(25, "JobFailed", "PyTorchJob bert has failed: worker-1: exit 1", "PyTorchJob/bert", "Warning"),
    ]
    server.job_frames[uid] = job_frames(uid, ranks, findings, lanes, events)
    log = "".join(f"\x1b[32mstep {step}\x1b[0m loss {2.3 / (1 + step / 40):.4f}\n" for step in range(8000))
    server.logs[uid] = {
        f"{replica}/attempt-1-ab12/pytorch/1": (
            log + ("\n".join(evidence) + "\n" if replica == "worker-1" else "")
        ).encode()
        for replica in ranks["replica"]
    }
    server.manifests[uid] = (
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata:\n  name: bert\nspec:\n  pytorchReplicaSpecs: {}\n"
    )
    return uid


def add_resnet(server: CannedServer, size: int = 1000) -> str:
    """A running job of many ranks: some that wait, that have crashed, that are behind."""
    states = ["Running"] * size
    restarts, steps, lag, cpu, memory = [0] * size, [14_201] * size, [0] * size, [0.96] * size, [3_300_000_000] * size
    reasons, codes = [""] * size, [None] * size
    states[40], states[41] = "Pending", "CrashLoopBackOff"
    restarts[41], reasons[41], codes[41] = 7, "Error", 1  # type: ignore[call-overload]
    for number in range(3, size, 97):
        restarts[number] = 1 + number % 3
    for number in (418, 419):
        if number < size:
            steps[number], lag[number], cpu[number], memory[number] = 0, 14_201, 0.02, 400_000_000
    columns = rank_columns(
        states,
        restarts=restarts,
        step=steps,
        lag=lag,
        metrics=[{"step": 14_201.0, "loss": 0.412}] * size,
        cpu=cpu,
        memory=memory,
        peak=[3_500_000_000] * size,
        reason=reasons,
        exitCode=codes,
    )
    uid = server.add_job(
        uid=RESNET,
        namespace="team",
        name="resnet-1000",
        running=size - 2,
        replicas=size,
        restarts=sum(restarts),
        created=time.time() - 7500,
        started=time.time() - 7451,
    )
    server.progress[uid] = [uid, 14_201.0, 0.412, "zukfcba987654321", "worker-417, worker-418: behind"]
    findings = [
        finding(
            "waits",
            "worker-417, worker-418: behind; the slowest is at step 0, the median of the role is 14,201",
            "metrics.k8s.io, pod resnet-1000-worker-417: step, from file",
            [],
            "see what they do: `trainyard logs resnet-1000 --role worker --index 417`",
        ),
    ]
    events = [
        event(10 * number, "Restarted", f"worker-{number} is started again", f"Pod/job-worker-{number}")
        for number in range(1, 40)
    ]
    server.job_frames[uid] = job_frames(uid, columns, findings, running_lanes(columns["replica"]), events)
    server.log_frames[uid] = [
        {
            "type": "log",
            "uid": uid,
            "lines": [
                [
                    f"worker-{number % 8}",
                    f"step {14_000 + number} loss {0.41 + number % 7 / 100:.3f} lr 0.001 throughput 812 img/s",
                ]
                for number in range(180)
            ],
            "leftOut": 0,
        }
    ]
    return uid


def add_small_jobs(server: CannedServer) -> None:
    """Jobs as a person has them after a day's work."""
    now = time.time()
    server.add_job(
        uid="e1", kind="ElasticJob", name="elastic-train", running=3, replicas=4, created=now - 21, started=now - 15
    )
    server.add_job(
        uid="e2",
        kind="TfJob",
        name="mnist-dist",
        state="Pending",
        running=0,
        replicas=4,
        created=now - 45,
        started=None,
        message="2 of 4 replicas wait for memory",
    )
    server.add_job(
        uid="e3",
        kind="MPIJob",
        name="horovod-sweep-07",
        state="Suspended",
        running=0,
        replicas=8,
        created=now - 9000,
        started=None,
    )
    server.add_job(
        uid="e4",
        kind="JAXJob",
        name="gemma-finetune",
        state="Succeeded",
        running=0,
        replicas=2,
        created=now - 86400,
        ended=now - 80000,
        message="all replicas have succeeded",
    )
    for number in range(6):
        server.add_job(
            uid=f"h{number}",
            name=f"ablation-{number}",
            state="Succeeded" if number % 2 else "Failed",
            running=0,
            replicas=2,
            live=False,
            created=now - 90000 - 4000 * number,
            ended=now - 88000 - 4000 * number,
            message="" if number % 2 else "worker-0: exit 1, CUDA out of memory",
        )


def add_many_jobs(server: CannedServer, count: int = 10_000) -> None:
    now = time.time()
    states = ["Succeeded", "Succeeded", "Running", "Failed"]
    for number in range(count):
        state = states[number % 4]
        server.add_job(
            uid=f"{number:08d}",
            name=f"sweep-{number}",
            state=state,
            running=2 if state == "Running" else 0,
            replicas=2,
            created=now - number * 7,
            ended=None if state == "Running" else now - number * 7 + 5,
            message="worker-1: exit 1" if state == "Failed" else "",
        )


def add_hostile(server: CannedServer) -> str:
    """A job whose every text is markup."""
    uid = server.add_job(
        uid="c0000000",
        namespace="default",
        name="hostile",
        state="Failed",
        message=MARKUP,
        replicas=2,
        ended=time.time(),
    )
    ranks = rank_columns(
        ["Failed", "Failed"], reason=[MARKUP] * 2, message=[MARKUP] * 2, node=[MARKUP] * 2, exitCode=[1, 1]
    )
    lanes = [lane("worker-0", segment("running", time.time() - 60, time.time(), 1, MARKUP))]
    server.job_frames[uid] = job_frames(
        uid, ranks, [finding("problem", MARKUP, MARKUP, [MARKUP], MARKUP)], lanes, [event(3, MARKUP, MARKUP, MARKUP)]
    )
    server.logs[uid] = {"master-0/attempt-1-ab/pytorch/1": (MARKUP + "\n").encode() * 50}
    server.manifests[uid] = f"metadata:\n  annotations: {{note: {MARKUP!r}}}\n"
    return uid


STEPS = list(range(0, 1000, 10))
LOSSES = [2.0 / (1 + step / 100) for step in STEPS]


def add_sweep(server: CannedServer, count: int = 3) -> list[str]:
    """Ended runs whose losses end the higher the later they were started, and what differs between the first two."""
    uids = []
    for number in range(count):
        created = time.time() - 9000 + 1000 * number
        uid = server.add_job(
            uid=f"d000000{number}-0000-4000-8000-000000000000",
            name=f"sweep-{number}",
            state="Succeeded",
            running=0,
            replicas=3,
            restarts=number,
            created=created,
            started=created + 2,
            ended=created + 602,
        )
        add_losses(server, uid, [2.0 / (1 + step / 100) + number for step in STEPS], created + 2)
        server.peaks[uid] = 3_500_000_000 + number * 100_000_000
        uids.append(uid)
    server.differences = [
        {"field": "env LR", "roles": [], "values": [f"0.{number + 1}" for number in range(count)]},
        {"field": "image", "roles": ["worker"], "values": ["tf:2.20", *["tf:2.21"] * (count - 2), None]},
    ]
    return uids


def add_losses(server: CannedServer, uid: str, losses: list[float] = LOSSES, start: float | None = None) -> None:
    """The losses of three replicas of a job, one each second since `start`."""
    start = time.time() - 300 if start is None else start
    columns = {"name": "loss", "step": STEPS, "time": [start + step / 10 for step in STEPS]}
    curve = columns | {"replica": "master-0", "attempt": 1, "source": "pattern"}
    curve |= {"value": losses, "min": losses, "max": losses}
    bounds = {"min": 0.1, "median": -0.1, "max": -0.3}  # from the leading replica, downwards
    spread = columns | {"replicas": 3}
    spread |= {name: [value - distance for value in losses] for name, distance in bounds.items()}
    answer = {"names": ["loss"], "sources": {"loss": ["pattern"]}, "series": [curve], "spread": [spread]}
    server.series[uid] = answer
    values = [loss - 0.2 for loss in losses]
    own = curve | {"replica": "worker-1", "value": values, "min": values, "max": values}
    server.series[f"{uid} worker-1"] = answer | {"series": [own]}
