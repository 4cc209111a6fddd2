"""What `trainyard why` says about the kinds of `kubeflow.org/v1` beside the rules that hold for every kind."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from trainyard.core import ExitAction, Job, Slot
from trainyard.core.diagnosis import (
    BLOCK,
    WAIT,
    Cause,
    Endpoint,
    Finding,
    LauncherOutput,
    ObservedReplicas,
    OutputPattern,
)
from trainyard.core.kind import Diagnosis
from trainyard.kinds.kubeflow_v1.framework import Framework
from trainyard.kinds.kubeflow_v1.lifecycle import FIRST_RETRYABLE_CODE, on_exit
from trainyard.kinds.kubeflow_v1.master_wait import NAME, NO_ADDRESS
from trainyard.kinds.pods.templates import whole_number
from trainyard.kinds.torchrun_diagnosis import (
    MODULE_FIXES,
    OUTPUT_PATTERNS,
    TORCHRUN,
    endpoint_of,
    unreachable,
    with_endpoint,
)
from trainyard.objects import Json
from trainyard.objects.structs import replace

MASTER_FIX = (
    "see the findings about master-0; if its pod is ready, the DNS of the cluster does not answer in this pod: "
    "look at its Service, and at NetworkPolicies"
)
"""Its Service resolves when the master's pod is ready."""
RDZV_HOST = "spec.elasticPolicy.rdzvHost"
_NOTHING = r"(?!)"
# A process whose program raises waits for the others before it ends, up to five minutes, and then ends so, too: learned
# from jax 0.10 (findings/jax-exception-seen-after-five-minutes.sh).
_JAX_ABORTED = r"Terminating process because the JAX distributed service detected fatal errors"
JAX_OUTPUT = LauncherOutput(
    files=_NOTHING,
    lines=_NOTHING,
    exit_code=r"((?!))",
    lost_peer=(
        r"Connection (?:closed|reset) by peer|another task died|(?:Gloo|coordination).*(?:failed|unavailable|closed)"
        r"|UNAVAILABLE: .*(?:heartbeat|[Cc]oordination)|[Bb]arrier timed out"
    ),
    aborted=_JAX_ABORTED,
)
"""The lines of the coordination service in a process that ends because another one did; jax has no launcher."""
JAX_PATTERNS = (
    OutputPattern(
        _JAX_ABORTED,
        "JAX ended it because another process of the job ended or did not come to its end",
        "see why that one ended: its lines in `trainyard logs`",
        anywhere=True,
        before_exceptions=False,
    ),
    OutputPattern(
        r"^ValueError: (?:Number of processes|The process id|coordinator_address)\b.* (?:must|should) be defined",
        "jax.distributed.initialize lacks an argument, and JAX does not read all of them from variables",
        'write jax.distributed.initialize(f\'{os.environ["COORDINATOR_ADDRESS"]}:{os.environ["COORDINATOR_PORT"]}\', '
        'int(os.environ["NUM_PROCESSES"]), int(os.environ["PROCESS_ID"]))',
    ),
    OutputPattern(
        r"another task died|Connection (?:closed|reset) by peer|heartbeat timeout",
        "it lost a peer: another process of the job ended",
        "see why that one ended: its lines in `trainyard logs`",
    ),
    OutputPattern(
        r"[Bb]arrier timed out|DEADLINE_EXCEEDED",
        "not all processes met in time",
        "see that every replica runs, and that each calls jax.distributed.initialize with COORDINATOR_ADDRESS, "
        "NUM_PROCESSES and PROCESS_ID",
    ),
)


def total(framework: Framework, spec: Json) -> int:
    """The replicas of all roles of a spec together."""
    counts = [whole_number(replica_spec.get("replicas")) for replica_spec in framework.replica_map(spec).values()]
    return sum(1 if count is None else count for count in counts)


def peers_needed(framework: Framework, spec: Json) -> int | None:
    """How many replicas meet before training starts: elasticPolicy.minReplicas (or maxReplicas, its default), else
    all."""
    policy = spec.get("elasticPolicy")
    bounds = (
        [whole_number(policy.get(f"{name}Replicas")) for name in ("min", "max")] if isinstance(policy, dict) else []
    )
    return next((bound for bound in bounds if bound is not None), total(framework, spec)) or None


def too_few(framework: Framework, job: Job, observed: ObservedReplicas) -> Iterator[Finding]:
    """Some replicas run, and fewer than have to meet."""
    needed, running = peers_needed(framework, job.parsed.spec), observed.states.count("Running")
    if needed is None or not 0 < running < needed or {"Succeeded", "Failed"} & set(observed.states):
        return
    if isinstance(job.parsed.spec.get("elasticPolicy"), dict):
        summary = f"{running} of at least {needed} replicas run: its rendezvous waits for the others"
        fix = "see the findings about the others, or lower spec.elasticPolicy.minReplicas"
        yield Finding(BLOCK, summary, "spec.elasticPolicy.minReplicas", (), fix)
    else:
        summary = f"{running} of {needed} replicas run: training begins when all of them have met"
        yield Finding(WAIT, summary, f"spec.{framework.replicas_field}", (), "see the findings about the others")


def exit_note(framework: Framework, job: Job, role: str, code: int) -> str:
    """Why `restartPolicy: ExitCode` did not retry."""
    policy = framework.restart_policy_of(role, framework.replica_spec(job, role))
    if policy != "ExitCode" or on_exit(framework, job, Slot(role, 0), code, "") is not ExitAction.FAIL:
        return ""
    return f"restartPolicy ExitCode retries codes from {FIRST_RETRYABLE_CODE} on, and {code} fails the job"


def rendezvous(job: Json) -> Endpoint | None:
    """elasticPolicy.rdzvHost of a PyTorchJob. None without it: Worker 0 is the rendezvous then."""
    spec = job.get("spec")
    policy = spec.get("elasticPolicy") if isinstance(spec, dict) else None
    host, port = (policy.get("rdzvHost"), policy.get("rdzvPort")) if isinstance(policy, dict) else (None, None)
    if isinstance(host, str) and host.strip() and port:
        host = f"{host}:{port}"
    return endpoint_of(job, host, RDZV_HOST)


def refine(job: Job, cause: Cause) -> Cause:
    """Name the endpoint that a launcher could not reach."""
    endpoint = rendezvous({"spec": job.parsed.spec, "metadata": job.obj["metadata"]})
    return with_endpoint(cause, endpoint.address if endpoint else "", RDZV_HOST)


def diagnosis_of(framework: Framework) -> Diagnosis:
    """That of the framework, with the rules that all of these kinds have."""
    own = framework.diagnosis
    if framework.all_meet:
        rules = (*own.rules, lambda job, observed: too_few(framework, job, observed))
        own = replace(own, rules=rules, peers_needed=partial(peers_needed, framework))
    return replace(own, exit_note=partial(exit_note, framework))


PYTORCH = Diagnosis(
    rules=(unreachable,),
    output_patterns=(
        OutputPattern(rf"the master (\S+) {NO_ADDRESS}", "the name of the master, {name}, did not resolve", MASTER_FIX),
        *OUTPUT_PATTERNS,
    ),
    endpoint=rendezvous,
    refine=refine,
    launcher=TORCHRUN,
    module_fixes=MODULE_FIXES,
    init_containers={NAME: Cause("it waits until the name of the master resolves", MASTER_FIX)},
)
JAX = Diagnosis(output_patterns=JAX_PATTERNS, launcher=JAX_OUTPUT)
