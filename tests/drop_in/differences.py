"""The differences from Kubeflow's operators that are meant.

Rules:
- Each certain entry is hit at least once. An entry that is not fails the test: the difference is gone, and so goes it.
- `reason` is the topic of a row in docs/compatibility.md, section `kubeflow.org/v1`.
- An entry for scenarios in which the two jobs go different ways names what follows from that, field by field: the
  templates of the children and the spec are compared on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tests.drop_in.accepted import (
    ABSENT,
    COUNTS,
    ENDED,
    FAILED,
    NO_JOB,
    RESTARTING,
    RUNNING,
    SUCCEEDED,
    Accepted,
)
from tests.drop_in.accepted import accepted as _accepted
from tests.drop_in.compare import Difference
from tests.drop_in.differences_mpi import MPI

FAILED_EVENT, SUCCEEDED_EVENT = "events Normal *JobFailed **", "events Normal *JobSucceeded **"
CREATED_EVENT, DELETED_EVENT = "events Normal SuccessfulCreate* **", "events Normal SuccessfulDelete* **"

OF_EVERY_JOB = (
    *_accepted("**", "labels", "* .metadata.labels.trainyard.dev/*"),
    *_accepted("**", "`terminationMessagePolicy`", "pods/* .spec.*.terminationMessagePolicy"),
    *_accepted(
        "**",
        "further fields of the status",
        "job .status.cause",
        "job .status.counted",
        "job .status.hasRun",
        "job .status.observedGeneration",
        "job .status.ready",
        "job .status.restarts",
        "job .status.restartCauses",
        "job .status.resumes",
        "job .status.roles",
        "job .status.state",
        "job .status.version",
    ),
    *_accepted("**", "`replicaStatuses`", "job .status.replicaStatuses", "job .status.replicaStatuses.*.selector"),
    *_accepted(
        "pytorchjob/*elastic*",
        "variables of the rendezvous",
        "pods/* .spec.*.env[TORCH_DISABLE_SHARE_RDZV_TCP_STORE]",
        certain=False,
    ),
    *_accepted("pytorchjob/*elastic*", "host of the c10d store", "pods/* .spec.*.env[PET_RDZV_CONF]", certain=False),
    *_accepted("pytorchjob/**", "the init container `init-pytorch`", "pods/* .spec.initContainers[init-pytorch].**"),
    *_accepted("**", "event `ExitedWithCode`", "events Normal ExitedWithCode **"),
    *_accepted("**", "events of a restart", "events Warning *JobRestarting **"),
    *_accepted(
        "tfjob/cluster-every-role tfjob/dynamic-worker-with-chief tfjob/failure-*-with-chief "
        "tfjob/replicas-two-leaders",
        "events of many children",
        "events Normal SuccessfulCreatePod **",
        "events Normal SuccessfulCreateService **",
    ),
)
LIMITS = (
    *_accepted(
        "*/backoff-limit-*", "`backoffLimit`",
        *ABSENT, "phases/*", "absent pods", COUNTS, ENDED, FAILED, SUCCEEDED, RUNNING,
        FAILED_EVENT, SUCCEEDED_EVENT, DELETED_EVENT,
    ),
    *_accepted(
        "*/deadline-*", "`activeDeadlineSeconds`",
        *ABSENT, COUNTS, ENDED, FAILED, RUNNING, FAILED_EVENT, DELETED_EVENT,
    ),
)  # fmt: skip
ENDS = (
    *_accepted(
        "*/evicted-never", "evicted pods",
        "phases/*", COUNTS, ENDED, FAILED, SUCCEEDED, RUNNING, FAILED_EVENT, SUCCEEDED_EVENT, DELETED_EVENT,
    ),
    *_accepted(
        "*/containers-sidecar-*", "sidecars",
        "phases/*", COUNTS, ENDED, FAILED, SUCCEEDED, RUNNING, RESTARTING,
        FAILED_EVENT, SUCCEEDED_EVENT, DELETED_EVENT,
    ),
    *_accepted("*/clean-*", "counts of a job that has ended", COUNTS),
    *_accepted("*/gang-*-failure", "counts of a job that has ended", COUNTS),
    *_accepted("*/restart-exitcode-*", "a permanent exit code", ENDED),
    *_accepted("tfjob/restart-exitcode-*", "a permanent exit code", "events Normal TFJobFailed **"),
    *_accepted("xgboostjob/restart-onfailure-*", "the failed pod of a failed XGBoostJob", DELETED_EVENT, "pods/*"),
    *_accepted(
        "xgboostjob/restart-exitcode-137-master", "events of a restart", "job .status.conditions[Restarting].message"
    ),
    *_accepted("tfjob/dynamic-worker-fails", "condition `Degraded`", "job .status.conditions[Degraded]",
               "events Warning ReplicaFailed **"),
    *_accepted(
        "*/ttl-*", "events of a deleted job",
        "events Normal SuccessfulDelete* **Deleted job: **",
    ),
    *_accepted("*/ttl-*", "events of a deleted job", "events Warning FailedDelete* **", certain=False),
    *_accepted("pytorchjob/pod-deleted-leader jaxjob/clean-*-success", "`Running`", RUNNING),
)  # fmt: skip
SUSPENDED = (
    *_accepted("**suspend**", "`startTime` of a suspended job", "job .status.startTime"),
    *_accepted("*/suspend-while-running", "event of the second success", SUCCEEDED_EVENT),
    *_accepted(
        "**suspend** jaxjob/clean-*-success pytorchjob/pod-deleted-leader",
        "order of conditions",
        "job .status.conditions order",
    ),
)
CHILDREN = ("pods/*", CREATED_EVENT)  # and has none of its children
REFUSED_OBJECT_EVENT = "events Warning FailedCreate* **"
ADMISSION = (
    *_accepted("*/roles-empty", "refusals", *NO_JOB),
    *_accepted("tfjob/roles-unknown */clean-pod-policy-unknown", "refusals", *NO_JOB, *CHILDREN, "services/*"),
    *_accepted("tfjob/success-policy-chiefonly-*", "refusals", *NO_JOB, *CHILDREN, "services/*", "steps"),
    *_accepted("*/restart-policy-unknown", "refusals", *NO_JOB, REFUSED_OBJECT_EVENT),
    *_accepted("*/name-long", "refusals", *NO_JOB, *CHILDREN, REFUSED_OBJECT_EVENT),
    *_accepted("*/managed-by-changed", "refusals", "refused"),
    *_accepted("*/roles-lower-case", "names of roles", *NO_JOB, *CHILDREN, "services/*"),
    *_accepted("*/replicas-none", "numbers of replicas", *NO_JOB, *CHILDREN, "services/*"),
    *_accepted("*/scale-to-zero", "numbers of replicas", "refused", "pods/*", "services/*", COUNTS, DELETED_EVENT),
    *_accepted("*/replicas-zero-workers", "numbers of replicas", *NO_JOB, *CHILDREN, "services/*"),
    *_accepted("*/replicas-zero-workers", "no workers", DELETED_EVENT, REFUSED_OBJECT_EVENT, SUCCEEDED_EVENT),
    *_accepted("jaxjob/replicas-zero-workers", "no workers", ENDED, SUCCEEDED, "absent pods"),
    *_accepted(
        "jaxjob/managed-by-foreign", "`managedBy` of a JAXJob",
        *CHILDREN, "services/*", "job .status.conditions", "job .status.startTime",
    ),
)  # fmt: skip
REFUSED_CHILDREN = (
    *_accepted(
        "*/name-taken-*", "names that are taken",
        *ABSENT, "job .status.conditions", "job .status.startTime",
        CREATED_EVENT, REFUSED_OBJECT_EVENT, "events Warning NameTaken **",
    ),
    *_accepted(
        "pytorchjob/init-container-own", "refused children",
        "pods/*", "job .status.conditions", "job .status.startTime", ENDED,
        FAILED_EVENT, DELETED_EVENT, REFUSED_OBJECT_EVENT,
    ),
    *_accepted("pytorchjob/init-container-own", "refused children", "services/*", CREATED_EVENT),
    *_accepted(
        "pytorchjob/ports-unnamed", "ports without a name",
        "services/*", "job .status.conditions", "job .status.startTime", CREATED_EVENT, REFUSED_OBJECT_EVENT,
    ),
)  # fmt: skip
GANGS = (
    *_accepted(
        "*/gang-volcano-*", "a job that Volcano has not admitted",
        "job .status.conditions[Blocked]", "events Warning NotAdmitted **", certain=False,
    ),
    *_accepted("*/gang-*", "`lastReconcileTime`", "job .status.lastReconcileTime"),
    *_accepted("*/gang-volcano-*", "`minResources` of a PodGroup", "**PodGroups/* .spec.minResources.*"),
    *_accepted(
        "*/gang-scheduler-plugins-*", "`minResources` of scheduler-plugins", "**PodGroups/* .spec.minResources",
    ),
    *_accepted(
        "*/gang-*-suspend", "deletion of a PodGroup",
        "events Normal JobTerminated **", "events Normal SuccessfulDeletePodGroup **",
    ),
    *_accepted("*/gang-*-failure", "deletion of a PodGroup", "events Warning FailedDeletePodGroup **"),
)  # fmt: skip
AUTOSCALERS = (
    *_accepted("pytorchjob/elastic-metrics-success pytorchjob/example-elastic-imagenet-imagenet",
               "the autoscaler of a job that has ended", "horizontalPodAutoscalers/*"),
    *_accepted("paddlejob/elastic-metrics", "`metrics` of a PaddleJob", "horizontalPodAutoscalers/*"),
)  # fmt: skip
"""The embedded server has no autoscalers: these are hit beside a real control plane."""
ACCEPTED: tuple[Accepted, ...] = (
    *OF_EVERY_JOB, *LIMITS, *ENDS, *SUSPENDED, *ADMISSION, *REFUSED_CHILDREN, *GANGS, *AUTOSCALERS, *MPI,
)  # fmt: skip


def unaccepted(scenario: str, differences: Iterable[Difference], accepted: Iterable[Accepted] = ACCEPTED) -> list[str]:
    """The differences that no entry accepts, a line each."""
    entries = list(accepted)
    return [
        f"{scenario} {difference}"
        for difference in differences
        if not any(entry.matches(scenario, difference) for entry in entries)
    ]


def unhit(differences: Mapping[str, Iterable[Difference]], accepted: Iterable[Accepted]) -> list[Accepted]:
    """The certain entries that accept none of the differences, which are by scenario."""
    listed = [(scenario, difference) for scenario, of_scenario in differences.items() for difference in of_scenario]
    return [
        entry
        for entry in accepted
        if entry.certain and not any(entry.matches(*scenario_and_difference) for scenario_and_difference in listed)
    ]
