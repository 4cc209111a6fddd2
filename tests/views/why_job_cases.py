"""Findings of `why` about the job itself: its end, its conditions, its manager."""

from __future__ import annotations

from typing import Any

from tests.views.why_values import RUNNING, WORKERS, Case, at, elastic, ended, pod, pytorch, template, tfjob, waits
from trainyard.objects import Json
from trainyard.views.diagnosis import BLOCK, END, FINE, WAIT

TRACE = ("Traceback (most recent call last):", "ValueError: no data")


def failed(reason: str, message: str) -> Json:
    job = tfjob(("Failed", reason, message))
    job["status"]["completionTime"] = at(60)
    return job


def going() -> Json:
    job = tfjob(RUNNING)
    job["metadata"] |= {"deletionTimestamp": at(9), "finalizers": ["example.com/keep"]}
    return job


def young() -> Json:
    job = tfjob()
    job["metadata"]["creationTimestamp"] = at(1)
    return job


def with_address(obj: Json, address: str) -> Json:
    obj["status"]["podIP"] = address
    return obj


NO_ACCOUNT = 'error looking up service account default/trainer: serviceaccount "trainer" not found'


def restarted(job: Json) -> Json:
    job["status"]["restarts"] = 5
    return job


def lost_output(pod_name: str) -> Json:
    message = "its output is being lost: /logs/1.log cannot be written: No space left on device; free some space there"
    about = {"kind": "Pod", "name": pod_name, "uid": "p"}
    return {"type": "Warning", "reason": "OutputLost", "message": message, "involvedObject": about}


def chainer(job: Json, **master: Any) -> Json:
    spec = {"backend": "mpi", "master": {"template": template("chainer"), **master}}
    return {**job, "apiVersion": "kubeflow.org/v1alpha1", "kind": "ChainerJob", "spec": spec}


def torch_failed() -> Json:
    return elastic(("Failed", "ElasticJobFailed", "Worker 0: exited with code 1"))


def torch_pod(slot: str, ago: float = 30, code: int = 1) -> Json:
    return pod(slot, {"state": ended(code, ago=ago)}, "Failed", "elasticjob-worker")


RATE = (
    "hi",
    "Traceback (most recent call last):",
    '  File "/a/f1.py", line 4, in <module>',
    "    d[k]",
    "KeyError: 'rate'",
)
PEER_LOST = (
    "Traceback (most recent call last):",
    '  File "/a/f1.py", line 9, in <module>',
    "    dist.all_reduce(t)",
    '  File "/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py", line 1541, in all_reduce',
    "    work.wait()",
    "RuntimeError: [./gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.244.0.2]:51585",
)
TORCHRUN = (
    "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 0 (pid: 6) of binary: /p",
    "Traceback (most recent call last):",
    '  File "<frozen runpy>", line 198, in _run_module_as_main',
    '  File "/usr/lib/python3/dist-packages/torch/distributed/run.py", line 766, in <module>',
    "    main()",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
    "============================================================",
    "f1.py FAILED",
    "Root Cause (first observed failure):",
    "[0]:",
    "  rank      : 0 (local_rank: 0)",
    "  exitcode  : 1 (pid: 6)",
)
KILLED = "  traceback : Signal 9 (SIGKILL) received by PID 6"


def torchrun_summary(*codes: int) -> tuple[str, ...]:
    """The end of torchrun 2.15 whose processes, of rank 0 and so on, had these exit codes; the last one ended first."""
    *others, first = (
        (
            f"[{len(codes) - 1 - rank}]:",
            "  time      : 2026-11-29_09:27:19",
            "  host      : train-master-0",
            f"  rank      : {rank} (local_rank: {rank})",
            f"  exitcode  : {code} (pid: {5 + rank})  (SIGKILL)",
            "  error_file: <N/A>",
        )
        for rank, code in enumerate(codes)
    )
    root = "Root Cause (first observed failure):"
    return (*TORCHRUN[1:8], "Failures:", *(line for lines in others for line in lines), root, *first)


JOB_CASES = (
    # --- the job is not ours to look at, or nobody looks at it
    Case(
        "managed by somebody else",
        tfjob(managedBy="kueue.x-k8s.io/multikueue"),
        (),
        BLOCK,
        ("kueue.x-k8s.io", "spec.managedBy"),
    ),
    Case("being deleted", going(), (), BLOCK, ("is being deleted for 9s", "example.com/keep must take it away")),
    Case(
        "no operator", tfjob(), (), BLOCK, ("no operator reconciles it", "status is empty for 3m", "trainyard status")
    ),
    Case("just made", young(), (), WAIT, ("has just been created",)),
    # --- it has ended
    Case(
        "permanent exit code, last lines",
        failed("PermanentFailure", "MASTER 0: container tensorflow exited with code 3 (Error)"),
        (pod("MASTER-0", {"state": ended(3)}, "Failed"),),
        END,
        (
            "master-0 ended with exit code 3",
            "ValueError: no data",
            "pod master-0-abcd-x, container tensorflow: state.terminated.exitCode=3",
        ),
        {"logs": {("p-MASTER-0", "tensorflow"): TRACE}},
    ),
    Case(
        "out of memory",
        failed("PermanentFailure", "MASTER 0: OOMKilled"),
        (pod("MASTER-0", {"state": ended(137, "OOMKilled")}, "Failed"),),
        END,
        ("it ran out of memory; it has no memory limit", "where there is more memory", "it printed nothing"),
    ),
    Case(
        "only a termination message",
        failed("PermanentFailure", "x"),
        (pod("MASTER-0", {"state": ended(1, message="the data set is gone")}, "Failed"),),
        END,
        ("the data set is gone",),
    ),
    Case(
        "the deciding replica comes first",
        failed("PermanentFailure", "x"),
        (pod("WORKER-0", {"state": ended(9, ago=90)}), pod("MASTER-0", {"state": ended(3, ago=30)}, "Failed")),
        END,
        ("master-0 ended with exit code 3", "worker-0 ended with exit code 9"),
    ),
    Case(
        "backoffLimit",
        failed("BackoffLimitExceeded", "3 failed attempts, backoffLimit is 2"),
        (),
        END,
        ("backoffLimit is 2", "raise spec.backoffLimit"),
    ),
    Case(
        "a deadline after a crash loop",
        restarted(failed("DeadlineExceeded", "still running; MASTER 0 was restarted 5 times: exited with code 3")),
        (),
        END,
        (
            "replicas ended and were started again, 5 times",
            "exited with code 3",
            "mend what makes its program end (`trainyard logs tfjob/mnist`)",
            "a longer spec.activeDeadlineSeconds does not help",
        ),
    ),
    Case(
        "the deadline of a ChainerJob's master",
        chainer(failed("DeadlineExceeded", "still running"), activeDeadlineSeconds=9),
        (),
        END,
        ("raise spec.master.activeDeadlineSeconds",),
    ),
    Case(
        "torchrun's process, not torchrun",
        torch_failed(),
        (torch_pod("Worker-0"),),
        END,
        ("worker-0 ended with exit code 1 (Error): KeyError: 'rate' at /a/f1.py:4", "mend /a/f1.py:4"),
        {"logs": {("p-Worker-0", "elasticjob-worker"): (*RATE, *TORCHRUN)}},
    ),
    Case(
        "the torch worker that failed first, and the one that lost its peer",
        torch_failed(),
        (torch_pod("Worker-0", ago=40), torch_pod("Worker-1", ago=30)),
        END,
        ("worker-1 ended with exit code 1 (Error): KeyError: 'rate'", "; worker-0 lost a peer by that, and ended, too"),
        {
            "logs": {
                ("p-Worker-0", "elasticjob-worker"): (*PEER_LOST, *TORCHRUN),
                ("p-Worker-1", "elasticjob-worker"): (*RATE, *PEER_LOST, *TORCHRUN),
            }
        },
    ),
    Case(
        "the torch worker that failed and waited for its peers until it was stopped",
        torch_failed(),
        (torch_pod("Worker-0", ago=40), torch_pod("Worker-1", ago=30, code=143)),
        END,
        ("worker-1 ended with exit code 143 (Error): KeyError: 'rate'", "; worker-0 lost a peer by that"),
        {
            "logs": {
                ("p-Worker-0", "elasticjob-worker"): (*PEER_LOST, *TORCHRUN),
                ("p-Worker-1", "elasticjob-worker"): RATE,
            }
        },
    ),
    Case(
        "the process of torchrun in a PyTorchJob, and the replica that lost its peer",
        pytorch(("Failed", "PyTorchJobFailed", "Worker 1: exited with code 1")),
        tuple(
            pod(slot, {"state": ended(1, ago=ago)}, "Failed", "pytorch")
            for slot, ago in (("Worker-0", 40), ("Worker-1", 30))
        ),
        END,
        ("worker-1 ended with exit code 1 (Error): KeyError: 'rate'", "; worker-0 lost a peer by that, and ended, too"),
        {
            "logs": {
                ("p-Worker-0", "pytorch"): (*PEER_LOST, *TORCHRUN),
                ("p-Worker-1", "pytorch"): (*RATE, *PEER_LOST, *TORCHRUN),
            }
        },
    ),
    Case(
        "every torch worker lost a peer",
        torch_failed(),
        (torch_pod("Worker-0"),),
        END,
        ("it lost a peer: another process of the job ended", "see why that one ended"),
        {"logs": {("p-Worker-0", "elasticjob-worker"): (*PEER_LOST, *TORCHRUN)}},
    ),
    Case(
        "a torch worker lost a peer whose address it has",
        torch_failed(),
        (
            torch_pod("Worker-0"),
            with_address(pod("Worker-1", {"state": ended(0)}, "Succeeded", "elasticjob-worker"), "10.244.0.2"),
            with_address(pod("Worker-2", container="elasticjob-worker"), "10.244.0.5"),
        ),
        END,
        (
            "it lost a peer, worker-1, which ended with exit code 0",
            "see why: `trainyard logs elasticjob/mnist --role worker --index 1`",
        ),
        {"logs": {("p-Worker-0", "elasticjob-worker"): (*PEER_LOST, *TORCHRUN)}},
    ),
    Case(
        "a process of torchrun that SIGKILL ended",
        torch_failed(),
        (torch_pod("Worker-0"),),
        END,
        ("one of its processes, pid 6, was killed with SIGKILL", "dmesg"),
        {"logs": {("p-Worker-0", "elasticjob-worker"): ("step 1", *TORCHRUN[:-1], KILLED)}},
    ),
    Case(
        "the rank that SIGKILL ended, while another one lost its peer",
        torch_failed(),
        (torch_pod("Worker-0", ago=40), torch_pod("Worker-1", ago=30)),
        END,
        (
            "worker-1 ended with exit code 1 (Error): one of its processes, rank 1 (pid 6), was killed with SIGKILL",
            "; worker-0 lost a peer by that, and ended, too",
            "dmesg",
        ),
        {
            "logs": {
                ("p-Worker-0", "elasticjob-worker"): (*PEER_LOST, *TORCHRUN),
                ("p-Worker-1", "elasticjob-worker"): (*PEER_LOST, *torchrun_summary(1, -9)),
            }
        },
    ),
    Case(
        "a process that torchrun killed because another one had failed",
        torch_failed(),
        (torch_pod("Worker-0"),),
        END,
        ("worker-0 ended with exit code 1 (Error): KeyError: 'rate' at /a/f1.py:4", "mend /a/f1.py:4"),
        {"logs": {("p-Worker-0", "elasticjob-worker"): (*RATE, *torchrun_summary(-9, 1))}},
    ),
    Case(
        "one failure of a ChainerJob is told once",
        chainer(failed("BackoffLimitExceeded", "Job has reached the specified backoff limit")),
        (pod("Master-0", {"state": ended(1)}, "Failed", "chainer"),),
        END,
        ("master-0 ended with exit code 1 (Error): KeyError: 'rate'", "mend /a/f1.py:4"),
        {"logs": {("p-Master-0", "chainer"): RATE}},
    ),
    Case(
        "a deadline, and what it waited for",
        failed("DeadlineExceeded", "still running after activeDeadlineSeconds (60 s)"),
        (pod("MASTER-0", waits("ErrImageNeverPull", "no catalogue has an entry for x"), "Pending"),),
        END,
        ("activeDeadlineSeconds (60 s)", "raise spec.activeDeadlineSeconds", "master-0: its image is not on its node"),
    ),
    Case(
        "an invalid spec",
        failed("InvalidSpec", "must have 1 master (spec.replicaSpecs)"),
        (),
        END,
        ("must have 1 master", "trainyard lint"),
    ),
    Case(
        "an invalid child",
        failed("InvalidChild", "refused Job master-0: spec: Invalid value"),
        (),
        END,
        ("Invalid value", "mend the template"),
    ),
    Case("a reason that nobody knows", failed("Gremlins", "they were here"), (), END, ("Gremlins", "they were here")),
    Case(
        "success",
        {
            **tfjob(),
            "status": {
                "conditions": [{"type": "Succeeded", "status": "True", "message": "MASTER 0 ended"}],
                "startTime": at(100),
                "completionTime": at(40),
            },
        },
        (),
        FINE,
        ("it succeeded 40s ago, after 1:00", "MASTER 0 ended"),
    ),
    Case(
        "success as an operator of 2017 wrote it",
        tfjob(status={"state": "Succeeded", "phase": "Done", "conditions": None}),
        (),
        FINE,
        ("it succeeded",),
    ),
    Case(
        "output that is being lost",
        tfjob(RUNNING),
        (pod("MASTER-0"), *WORKERS),
        FINE,
        ("output of mnist-master-0 is lost", "/logs/1.log cannot be written: No space left", "free some space"),
        {"events": (lost_output("mnist-master-0"),)},
    ),
    # --- conditions
    Case(
        "suspended",
        tfjob(("Suspended", "JobSuspended", "no replica runs"), suspend=True),
        (),
        BLOCK,
        ("it is suspended for 3m", "trainyard resume tfjob/mnist"),
    ),
    Case("being resumed", tfjob(("Suspended", "JobSuspended", "x")), (), WAIT, ("being resumed",)),
    Case(
        "a taken name",
        tfjob(("NameConflict", "NameTaken", "Job master-abcd-0: belongs to TfJob other")),
        (),
        BLOCK,
        ("belongs to TfJob other", "delete or rename", "status.conditions[NameConflict]"),
    ),
    Case(
        "a stall",
        tfjob(("Stalled", "ProgressDeadlineExceeded", "pod a-worker-1 stopped first: no step after 41")),
        (),
        BLOCK,
        ("makes no progress", "pod a-worker-1 stopped first", "trainyard.dev/on-stall: restart"),
    ),
    Case(
        "a quota on children",
        tfjob(("Blocked", "QuotaExceeded", "exceeded quota: small")),
        (),
        BLOCK,
        ("exceeded quota: small", "raise the ResourceQuota"),
    ),
    Case(
        "an admission policy",
        tfjob(
            ("Blocked", "AdmissionPolicy", "Job a: forbidden: ValidatingAdmissionPolicy 'small-jobs' denied request")
        ),
        (),
        BLOCK,
        ("small-jobs", "ask whoever keeps that policy"),
    ),
    Case(
        "a ServiceAccount that is missing, of a kind whose pods the operator makes",
        pytorch(("Blocked", "Forbidden", f'pods "a-master-0" is forbidden: {NO_ACCOUNT}')),
        (),
        BLOCK,
        ("there is no ServiceAccount trainer", "kubectl create serviceaccount trainer", "error looking up"),
    ),
    Case(
        "no replicas",
        elastic(RUNNING, replicaSpecs={"Worker": {"replicas": 0, "template": {}}}),
        (),
        BLOCK,
        ("it has no replicas", "scale it: `trainyard scale elasticjob/mnist NUMBER`"),
    ),
    Case(
        "a missing right",
        tfjob(("Blocked", "Forbidden", "cannot create jobs")),
        (),
        BLOCK,
        ("cannot create jobs", "grant the operator the permission"),
    ),
    Case(
        "TensorBoard",
        tfjob(RUNNING, ("Degraded", "DeploymentUnavailable", "Deployment tensorboard-abcd: FailedCreate: PodSecurity")),
        (pod("MASTER-0"), *WORKERS),
        FINE,
        ("FailedCreate: PodSecurity", "like MASTER's"),
    ),
    Case(
        "a degraded PS",
        tfjob(RUNNING, ("Degraded", "ReplicaFailed", "PS 1 has failed and is not restarted: BackoffLimitExceeded")),
        (pod("MASTER-0"),),
        BLOCK,
        ("PS 1 has failed and is not restarted", "status.conditions[Degraded]"),
    ),
    Case(
        "a retry",
        tfjob(RUNNING, ("Restarting", "ReplicaEnded", "MASTER 0: exited with code 130; retryable, tried again")),
        (),
        WAIT,
        ("made again", "exited with code 130"),
    ),
    Case(
        "an edit that is not followed",
        tfjob(RUNNING, ("SpecChangeIgnored", "JobStarted", "WORKER has 2 replicas")),
        (pod("MASTER-0"), *WORKERS),
        FINE,
        ("WORKER has 2 replicas", "it runs fine"),
    ),
    Case(
        "unknown fields",
        tfjob(RUNNING, ("UnknownFields", "UnknownFields", "spec.replcias")),
        (pod("MASTER-0"), *WORKERS),
        FINE,
        ("spec.replcias", "check the spelling"),
    ),
    Case(
        "a condition that we have never heard of",
        tfjob(RUNNING, ("MoonPhase", "Full", "the moon is full")),
        (pod("MASTER-0"),),
        WAIT,
        ("its condition MoonPhase is True", "the moon is full"),
    ),
)
