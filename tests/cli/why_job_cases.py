"""What `why` says of the job itself: its end, its conditions, who looks at it."""

from __future__ import annotations

from tests.cli.why_values import RUNNING, WORKERS, Case, at, ended, pod, tfjob, waits
from trainyard.cli.diagnosis import BLOCK, END, FINE, WAIT
from trainyard.objects import Json

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
    Case("no operator", tfjob(), (), BLOCK, ("no operator looks at it", "status is empty for 3m", "trainyard status")),
    Case("just made", young(), (), WAIT, ("has just been made",)),
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
        "a missing right",
        tfjob(("Blocked", "Forbidden", "cannot create jobs")),
        (),
        BLOCK,
        ("cannot create jobs", "give the operator the right"),
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
        tfjob(RUNNING, ("Degraded", "ReplicaFailed", "PS 1 has given up: BackoffLimitExceeded")),
        (pod("MASTER-0"),),
        BLOCK,
        ("PS 1 has given up", "status.conditions[Degraded]"),
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
