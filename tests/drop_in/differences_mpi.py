"""The differences from Kubeflow's two operators of MPIJobs that are meant. The rules are those of differences.py."""

from __future__ import annotations

from tests.drop_in.accepted import (
    COUNTS,
    ENDED,
    FAILED,
    NO_JOB,
    RESTARTING,
    RUNNING,
    SUCCEEDED,
    accepted,
)

HOSTS = "configMaps/* .data.discover_hosts.sh"
FAILED_TEXTS = ("job .status.conditions[Failed].reason", "job .status.conditions[Failed].message")
RIGHTS = ("configMaps/*", "roles/*", "roleBindings/*", "serviceAccounts/*")
CHILDREN = ("jobs/*", "secrets/*", "configMaps/*", "services/*")
REFUSED = (
    "launcher-creation-unknown", "clean-some-success", "limits-negative", "managed-by-mine", "name-not-a-dns-label",
    "containers-none", "replicas-two-launchers", "restart-policy-always", "restart-policy-exitcode", "roles-unknown",
    "roles-workers-only", "slots-negative", "name-long",
)  # fmt: skip

LOSES_A_WORKER = (  # by a step, before the launcher ends with 0
    "mpijob/clean-all-success mpijob/clean-running-success mpijob/evicted-never mpijob/restart-exitcode-137-worker "
    "mpijob**/worker-succeeds-first"
)

OF_BOTH = (
    *accepted("mpijob**", "events of an MPIJob", "events **"),
    *accepted("mpijob/*", "reason of a failed MPIJob", FAILED_TEXTS[0]),
    *accepted("mpijob-v2beta1/*", "reason of a failed MPIJob", *FAILED_TEXTS),
    *accepted("mpijob**", "further fields of the status", "job .status.launch"),
    *accepted(
        LOSES_A_WORKER,
        "an MPIJob whose launcher ends with 0 after a worker was lost, or without using one",
        "job .status.conditions[SuccessInDoubt]",
    ),
    *accepted("mpijob/restart-* mpijob/evicted-* mpijob-v2beta1/*suspend*", "hosts of a job that has ended", HOSTS),
    *accepted("mpijob**/example-* mpijob-v2beta1/finish-*", "hosts of a job that has ended", HOSTS, certain=False),
    *accepted("mpijob**/example-*", "counts of a job that has ended", "pods/*", certain=False),
    *accepted("mpijob**", "counts of a job that has ended", COUNTS),
    *accepted("mpijob**", "variables of today's MPI", "**.env[PRTE_MCA_*]"),
    *accepted("mpijob-v2beta1/*", "variables of today's MPI", "**.env[HYDRA_LAUNCHER_EXTRA_ARGS]"),
    *accepted(
        "mpijob-v2beta1/implementation-intel-launcher-as-worker",
        "the launcher of Intel MPI as a worker",
        "configMaps/* .data.hostfile",
    ),
    *accepted(
        "mpijob/*",
        "variables of today's MPI",
        "**.env[HYDRA_*]",
        "**.env[I_MPI_*]",
        "**.env[TRAINYARD_POD_NAME]",
        "configMaps/* .data.hydra-hostfile",
        "pods/* .spec.volumes[mpi-job-config].configMap.items",
    ),
    *accepted("mpijob/clean-*-*", "`cleanPodPolicy: All` of an MPIJob", *RIGHTS),
    *accepted(
        "mpijob-v2beta1/*clean-all*",
        "`cleanPodPolicy: All` of an MPIJob",
        "jobs/*",
        "configMaps/*",
        "services/*",
        "pods/*",
    ),
)
V1 = (
    *accepted("mpijob/*", "rights of the launcher", "roles/* .rules[1].verbs"),
    *accepted(
        "mpijob/*",
        "command of a worker without one (v1)",
        "pods/* .spec.containers[*].command",
        "pods/* .spec.containers[*].args*",
    ),
    *accepted(
        "mpijob/replicas-none mpijob/replicas-zero-workers mpijob/roles-leader-only",
        "rights of the launcher", "roles/* .rules",
    ),
    *accepted(
        "mpijob/launcher-own-account-absent", "a launcher's account that does not exist",
        "serviceAccounts/*", "pods/*", "job .status.conditions[Blocked]",
    ),
    *accepted("mpijob/name-taken-pod", "names that are taken", "roles/*", "roleBindings/*"),
    *accepted("mpijob/config-map-taken", "names that are taken", "job .status.conditions", "job .status.startTime"),
    *accepted(
        "mpijob/roles-lower-case", "names of roles",
        *RIGHTS, "pods/*", "job .status.conditions", "job .status.startTime",
    ),
    *accepted("mpijob/roles-unknown mpijob/roles-workers-only mpijob/replicas-two-leaders", "refusals", *NO_JOB),
    *accepted("mpijob/roles-workers-only mpijob/replicas-two-leaders", "refusals", "steps"),
    *accepted("mpijob/gang-volcano-*", "a job that Volcano has not admitted", "configMaps/*", "serviceAccounts/*"),
    *accepted(
        "mpijob/restart-exitcode-*", "restarts of an MPIJob",
        "phases/*", FAILED, SUCCEEDED, RUNNING, RESTARTING, ENDED,
    ),
    *accepted("mpijob/*-evicted", "evicted pods", "phases/*", FAILED, RUNNING, ENDED, RESTARTING),
)  # fmt: skip
V2 = (
    *accepted("mpijob-v2beta1/*", "labels of the launcher's Job", "jobs/* .metadata.labels.*"),
    *accepted("mpijob-v2beta1/*", "labels", "jobs/* .spec.template.metadata.labels.trainyard.dev/*"),
    *accepted("mpijob-v2beta1/*", "labels of the launcher's Job", "jobs/* .spec.template.metadata.ownerReferences"),
    *accepted("mpijob-v2beta1/*", "`terminationMessagePolicy`", "jobs/* .spec.*.terminationMessagePolicy"),
    *accepted("mpijob-v2beta1/*suspend*", "a suspended MPIJob", *CHILDREN, "pods/*"),
    *accepted("mpijob-v2beta1/*suspend*", "a suspended MPIJob", RUNNING, "job .status.conditions order"),
    *accepted(" ".join(f"mpijob-v2beta1/{name}" for name in REFUSED), "refusals", *NO_JOB),
    *accepted(
        "mpijob-v2beta1/replicas-none mpijob-v2beta1/replicas-zero-workers", "numbers of replicas",
        *CHILDREN, "pods/*", "job .status.conditions", "job .status.startTime",
    ),
    *accepted(
        "mpijob-v2beta1/roles-lower-case", "names of roles",
        *CHILDREN, "pods/*", "job .status.conditions", "job .status.startTime",
    ),
    *accepted(
        "mpijob-v2beta1/roles-unknown", "refusals", *CHILDREN, "pods/*"
    ),
    *accepted(
        "mpijob-v2beta1/launcher-creation-unknown", "refusals", "secrets/*", "configMaps/*", "services/*", "pods/*"
    ),
    *accepted("mpijob-v2beta1/name-taken-config-map", "names that are taken", "secrets/*"),
    *accepted("mpijob-v2beta1/name-taken-service", "names that are taken", *CHILDREN[:3], "pods/*"),
    *accepted("mpijob-v2beta1/name-taken-secret", "names that are taken", "configMaps/*"),
    *accepted(
        "mpijob-v2beta1/name-taken-*", "names that are taken", "job .status.conditions", "job .status.startTime"
    ),
    *accepted("mpijob-v2beta1/ttl", "the TTL of an MPIJob v2beta1", "jobs/*", "pods/*", certain=False),
    *accepted("mpijob-v2beta1/worker-fails", "condition `Degraded`", "job .status.conditions[Degraded]"),
    *accepted("mpijob-v2beta1/worker-*", "evicted pods", "phases/*", FAILED, RUNNING),
    *accepted("mpijob-v2beta1/deadline", "`activeDeadlineSeconds`", FAILED),
    *accepted(
        "mpijob-v2beta1/gang-volcano-*", "a job that Volcano has not admitted",
        "jobs/*", "pods/*",
    ),
    *accepted(
        "mpijob-v2beta1/gang-volcano-*", "a job that Volcano has not admitted",
        "job .status.conditions[Blocked]", certain=False,
    ),
    *accepted("mpijob-v2beta1/gang-volcano-*", "`startTime` of an MPIJob in a queue", "job .status.startTime"),
    *accepted(
        "mpijob-v2beta1/gang-*", "the PodGroup of an MPIJob v2beta1",
        "**.annotations.volcano.sh/task-spec", "**PodGroups/j",
    ),
    *accepted(
        "mpijob-v2beta1/gang-scheduler-plugins-*", "the PodGroup of an MPIJob v2beta1",
        "schedulerPluginsPodGroups/* .spec.scheduleTimeoutSeconds",
    ),
)  # fmt: skip
MPI = (*OF_BOTH, *V1, *V2)
