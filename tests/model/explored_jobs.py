"""The scenes that are explored: which job, which transitions, how much trouble. The small ones are for every test run.

python -m tests.model.explored_jobs          the small scenes, one line each
python -m tests.model.explored_jobs --big    more trouble, several minutes
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import NamedTuple

from tests.model.explorer import EVERY, InitialState, explore
from tests.model.scenarios import Scenario, chainer, elastic, gang, local, tf
from tests.model.scenarios_kubeflow import (
    all_workers,
    dynamic_tensorflow,
    elastic_pytorch,
    jax,
    mpi,
    paddle,
    pytorch,
    ssh_mpi,
    tensorflow,
    xgboost,
)
from tests.model.scenarios_trainjob import ordered_jobs, restarted_jobs
from tests.model.transitions import Bounds
from tests.model.world import RUNTIME_ID
from trainyard.objects.no_progress import ON_STALL, PROGRESS_DEADLINE
from trainyard.objects.structs import replace

ALWAYS = ("pass", "dying pass", "unasked", "succeed")
VIEWS = ("remember", "restart", "mixed pass", "stale pass")
LIVING = ("pass", "unasked", *VIEWS)
"""With views, but the operator dies between passes only."""
SMALL = Bounds(trouble=1, time=1)


class Case(NamedTuple):
    """An initial state and the transitions allowed in it."""

    name: str
    initial_state: InitialState
    transitions: frozenset[str]


def small() -> Iterator[Case]:
    """What every test run visits."""
    troubles = ("fail", "drain", "delete pod", "delete job", "suspend", "edit", "edit early", "delete", "time")
    yield Case("every trouble", InitialState(bounds=SMALL), frozenset([*ALWAYS, *troubles]))
    yield Case("old views, failures", InitialState(bounds=SMALL), frozenset([*LIVING, "succeed", "fail"]))
    yield Case("old views, suspend", InitialState(bounds=SMALL), frozenset([*LIVING, "suspend"]))
    rest = ("drain", "delete job", "edit", "edit early", "delete")
    yield Case("old views, the rest", InitialState(bounds=SMALL), frozenset([*LIVING, *rest]))
    yield from policies()
    yield Case("born suspended", _scene(suspend=True), frozenset([*ALWAYS, "suspend"]))
    in_place = InitialState({"backoffLimit": 1}, tf(worker_restarts="OnFailure"), bounds=Bounds(trouble=2, time=1))
    yield Case("restarts in place", in_place, frozenset([*ALWAYS, "fail"]))
    with_ps = InitialState(scenario=tf(default_ps=True), bounds=SMALL)
    yield Case("a default PS", with_ps, frozenset(["pass", "unasked", "succeed", "fail"]))
    yield Case("TensorBoard", _scene(tensorboard={"logDir": "/l"}), frozenset(["pass", "unasked", "fail", "suspend"]))
    yield Case("a foreign name", foreign(), frozenset(["pass", "dying pass", "unasked", "fail", "time"]))
    yield from gangs()
    yield from elastics()
    yield from chainers()
    yield from kubeflow()
    yield from mpijobs()
    yield from ssh_mpijobs()
    yield from trainjobs()
    yield from restarts()


PEOPLE = ("delete pod", "delete job", "meddle", "edit", "delete")


def gangs() -> Iterator[Case]:
    """MxJob: in dist mode all are made again together."""
    small = gang()
    yield _case("gang, failures", small, ("fail", "drain", "succeed", "time"))
    yield _case("gang, dying", small, ("dying pass", "fail", "drain", "time"))
    yield _case("gang, people", small, (*PEOPLE, "edit early", "suspend"))
    yield _case("gang, a failure and a drain", small, ("fail", "drain", "time"), trouble=2)
    yield _case("gang, a failure and suspend", small, ("fail", "suspend", "time"), trouble=2)
    yield _case("gang, a failure and a lost Job", small, ("fail", "delete job", "time"), trouble=2)
    yield _case("gang, two workers", gang(2), ("fail", "succeed"), {"backoffLimit": 0})
    yield _case("gang, a replica is gone", small, ("dying pass", "vanish"))
    yield _case("gang, old views, failures", small, (*VIEWS, "fail"))
    yield _case("gang, old views, the rest", small, (*VIEWS, "delete job", "suspend"))
    for clean in ("Running", "All"):
        policies = {"cleanPodPolicy": clean, "backoffLimit": 0, "ttlSecondsAfterFinished": 5}
        yield _case(f"gang, cleanPodPolicy {clean}", small, ("fail", "succeed", "time"), policies)
    transitions = ("dying pass", "fail", "drain", "succeed", "time", "suspend", *PEOPLE)
    yield _case("one local worker", local(), transitions)


def elastics() -> Iterator[Case]:
    """ElasticJob: scaled while it runs, ends and is suspended."""
    small = elastic()
    trouble = ("fail", "drain", "suspend", "time", *PEOPLE)
    yield _case("elastic, every trouble", small, ("dying pass", "succeed", *trouble))
    yield _case("elastic, Never", elastic(policy="Never"), ("dying pass", *trouble))
    in_place = elastic(policy="OnFailure")
    yield _case("elastic, restarts in place", in_place, ("fail", "edit", "succeed"), {"backoffLimit": 1}, trouble=3)
    held = InitialState(scenario=small, foreign="small-worker-1", foreign_kind="Pod", bounds=SMALL)
    yield Case("elastic, a foreign name", held, frozenset(["pass", "unasked", "edit", "fail", "time"]))
    yield _case("elastic, scaled while one fails", small, ("fail", "edit", "time", "succeed"), trouble=2)
    yield _case("elastic, scaled while it is suspended", small, ("dying pass", "suspend", "edit"), trouble=2)
    yield _case("elastic, scaled twice", elastic(1), ("dying pass", "succeed", "edit", "fail"), trouble=3)
    yield _case(
        "elastic, suspended after a failure", small, ("fail", "suspend", "time"), {"backoffLimit": 1}, trouble=2
    )
    yield _case("elastic, old views", small, (*VIEWS, "fail", "edit", "suspend"))
    yield _case("elastic, backoffLimit", small, ("fail", "drain", "edit", "time"), {"backoffLimit": 0}, trouble=2)
    for clean in ("None", "Running", "All"):
        policies = {"cleanPodPolicy": clean, "activeDeadlineSeconds": 30}
        yield _case(f"elastic, cleanPodPolicy {clean}", small, ("fail", "succeed", "edit", "time"), policies)


def chainers() -> Iterator[Case]:
    """ChainerJob: a master that tries again by itself, and sets that follow the spec."""
    small = chainer(1)
    limit = {"backoffLimit": 1}
    yield _case("chainer, every trouble", small, ("dying pass", "succeed", "fail", "drain", "suspend", *PEOPLE), limit)
    yield _case("chainer, two edits", small, ("succeed", "edit"), trouble=2)
    yield _case("chainer, two edits, dying", small, ("dying pass", "edit"), trouble=2)
    yield _case("chainer, edited while it is suspended", small, ("suspend", "edit", "succeed"), trouble=2)
    yield _case("chainer, people and edits", chainer(1, 1), ("meddle", "delete job", "edit"), trouble=2)
    yield _case("chainer, old views", small, (*VIEWS, "edit", "suspend", "succeed"))
    for clean in ("None", "Running", "All"):
        policies = {"cleanPodPolicy": clean, "backoffLimit": 0, "ttlSecondsAfterFinished": 5}
        yield _case(f"chainer, cleanPodPolicy {clean}", small, ("fail", "succeed", "edit", "time"), policies)
    for kind, name in (("Job", "small-master"), ("StatefulSet", "small-workerset-a"), ("Role", "small-launcher-role")):
        held = InitialState(scenario=small, foreign=name, foreign_kind=kind, bounds=SMALL)
        yield Case(f"chainer, a foreign {kind}", held, frozenset(["pass", "unasked", "edit", "time"]))


def kubeflow() -> Iterator[Case]:
    """The kinds of kubeflow.org/v1: gangs of Pods, and Pods that restart alone."""
    every = ("dying pass", "fail", "drain", "succeed", "suspend", "time", *PEOPLE)
    gang_of_pods = pytorch()
    for name, scenario in {
        "PyTorchJob": gang_of_pods,
        "PyTorchJob, Never": pytorch("Never"),
        "PyTorchJob, restart-scope replica": pytorch(scope="replica"),
        "PyTorchJob, elastic": elastic_pytorch(),
        "JAXJob, scaled": jax(most=3),
        "XGBoostJob": xgboost(),
        "PaddleJob": paddle(),
        "TFJob": tensorflow(),
        "TFJob, restart-scope gang": tensorflow(scope="gang"),
        "TFJob, dynamic workers": dynamic_tensorflow(),
        "TFJob, without a chief": all_workers(),
    }.items():
        yield _case(f"{name}, every trouble", scenario, every)
    yield _case("PyTorchJob, a failure and a drain", gang_of_pods, ("fail", "drain", "time"), trouble=2)
    yield _case("PyTorchJob, a failure and suspend", gang_of_pods, ("fail", "suspend", "time"), trouble=2)
    yield _case("PyTorchJob, a failure and a lost Pod", gang_of_pods, ("fail", "delete pod", "time"), trouble=2)
    lost = ("vanish", "fail", "drain", "time")
    yield _case("PyTorchJob, a Pod is gone", gang_of_pods, ("dying pass", "succeed", *lost))
    yield _case("PyTorchJob, two troubles, a Pod is gone", gang_of_pods, lost, trouble=2)
    yield _case("PyTorchJob, a Pod is gone, suspend", gang_of_pods, ("suspend", "vanish"), trouble=2)
    yield _case("PyTorchJob, a Pod is gone, old views", gang_of_pods, (*VIEWS, "vanish"))
    yield _case("JAXJob, a Pod is gone while it is scaled", jax(most=3), ("vanish", "edit"), trouble=2)
    yield _case("restart-scope replica, a Pod is gone", pytorch(scope="replica"), ("succeed", *lost))
    yield _case("PyTorchJob, two workers", pytorch(workers=2), ("fail", "succeed"), {"backoffLimit": 0})
    yield _case("PyTorchJob, old views", gang_of_pods, (*VIEWS, "fail", "suspend"))
    yield _case("PyTorchJob, a lost Pod, old views", gang_of_pods, (*VIEWS, "delete pod", "drain"))
    yield _case("JAXJob, scaled while one fails", jax(most=3), ("fail", "edit", "time", "succeed"), trouble=2)
    yield _case("elastic PyTorchJob, scaled while one fails", elastic_pytorch(), ("fail", "edit", "time"), trouble=2)
    yield _case("elastic PyTorchJob, old views", elastic_pytorch(1), (*VIEWS, "fail", "edit", "suspend"))
    yield _case("TFJob, dynamic workers, old views", dynamic_tensorflow(), (*VIEWS, "fail"))
    for name, scenario in {"PyTorchJob": pytorch("OnFailure"), "XGBoostJob": xgboost("OnFailure")}.items():
        transitions = ("fail", "drain", "succeed", "time")
        yield _case(f"{name}, restarts in place", scenario, transitions, {"backoffLimit": 1}, trouble=3)
    for clean in ("None", "Running", "All"):
        for name, scenario in {"PyTorchJob": gang_of_pods, "TFJob": tensorflow()}.items():
            ends = {"backoffLimit": 0, "ttlSecondsAfterFinished": 5, "activeDeadlineSeconds": 30}
            transitions = ("fail", "succeed", "suspend", "time")
            yield _case(f"{name}, cleanPodPolicy {clean}", scenario, transitions, {"cleanPodPolicy": clean, **ends})


def mpijobs() -> Iterator[Case]:
    """MPIJob of kubeflow.org/v1: the launcher decides, and each replica restarts alone."""
    small = mpi()
    yield _case("MPIJob, failures", small, ("dying pass", "fail", "drain", "succeed", "time"))
    yield _case("MPIJob, people", small, ("dying pass", "suspend", *PEOPLE))
    yield _case("MPIJob, a failure and a drain", small, ("fail", "drain", "time"), trouble=2)
    yield _case("MPIJob, a failure and suspend", small, ("fail", "suspend", "time"), trouble=2)
    yield _case("MPIJob, old views", small, (*VIEWS, "fail", "suspend"))
    yield _case("MPIJob, a lost Pod, old views", small, (*VIEWS, "delete pod", "drain"))
    yield _case("MPIJob, Never", mpi("Never"), ("dying pass", "fail", "drain", "succeed"))
    for clean in ("None", "Running", "All"):
        policies = {"cleanPodPolicy": clean, "backoffLimit": 0, "ttlSecondsAfterFinished": 5}
        yield _case(f"MPIJob, cleanPodPolicy {clean}", small, ("fail", "succeed", "suspend", "time"), policies)
    for kind, name in (
        ("Pod", "small-worker-0"),
        ("Pod", "small-launcher"),
        ("ConfigMap", "small-config"),
        ("ServiceAccount", "small-launcher"),
        ("Role", "small-launcher"),
        ("RoleBinding", "small-launcher"),
    ):
        held = InitialState(scenario=small, foreign=name, foreign_kind=kind, bounds=SMALL)
        yield Case(
            f"MPIJob, a foreign {kind} {name}", held, frozenset(["pass", "dying pass", "unasked", "fail", "time"])
        )


def ssh_mpijobs() -> Iterator[Case]:
    """MPIJob of v2beta1: the Job of the launcher decides, and workers restart alone."""
    small = ssh_mpi()
    name = "MPIJob v2beta1"
    yield _case(f"{name}, failures", small, ("dying pass", "fail", "drain", "succeed", "time"))
    yield _case(f"{name}, people", small, ("dying pass", "suspend", "vanish", *PEOPLE))
    yield _case(f"{name}, a failure and a drain", small, ("fail", "drain", "time"), trouble=2)
    yield _case(f"{name}, a failure and suspend", small, ("fail", "suspend", "time"), trouble=2)
    yield _case(f"{name}, backoffLimit", small, ("fail", "drain", "succeed"), {"backoffLimit": 1}, trouble=2)
    yield _case(f"{name}, a lost Pod, old views", small, (*VIEWS, "delete pod", "drain"))
    yield _case(f"{name}, old views", small, (*VIEWS, "fail", "suspend"))
    waits = replace(small, spec={**small.spec, "launcherCreationPolicy": "WaitForWorkersReady"})
    # No worker ends by itself: one that has is never ready, so that the launcher waits for ever, as in mpi-operator.
    yield _case(f"{name}, the launcher waits", waits, ("dying pass", "drain", "delete pod", "vanish", "suspend"))
    for clean in ("None", "Running", "All"):
        yield _case(
            f"{name}, cleanPodPolicy {clean}",
            small,
            ("fail", "succeed", "suspend", "time"),
            {"cleanPodPolicy": clean, "backoffLimit": 0},
        )
    for kind, foreign_name in (
        ("Job", "small-launcher"),
        ("Pod", "small-worker-0"),
        ("ConfigMap", "small-config"),
        ("Secret", "small-ssh"),
        ("Service", "small"),
    ):
        held = InitialState(scenario=small, foreign=foreign_name, foreign_kind=kind, bounds=SMALL)
        yield Case(f"{name}, a foreign {kind}", held, frozenset(["pass", "dying pass", "unasked", "fail", "time"]))


def trainjobs() -> Iterator[Case]:
    """TrainJob: replicated jobs in an order, which restart alone or, with a failurePolicy, together."""
    every = ("dying pass", "fail", "drain", "succeed", "suspend", "time", "delete pod", "meddle", "delete")
    for name, scenario in {"TrainJob": ordered_jobs(), "TrainJob, failurePolicy": restarted_jobs()}.items():
        yield _case(f"{name}, every trouble", scenario, every)
        yield _case(f"{name}, two troubles", scenario, ("succeed", "fail", "drain", "time"), trouble=2)
        yield _case(f"{name}, a failure and suspend", scenario, ("succeed", "fail", "suspend", "time"), trouble=2)
        yield _case(f"{name}, dying", scenario, ("dying pass", "succeed", "fail", "vanish", "time"), trouble=2)
        yield _case(f"{name}, old views", scenario, (*VIEWS, "succeed", "fail", "suspend"))
        deadline = {"activeDeadlineSeconds": 30}
        yield _case(f"{name}, a deadline", scenario, ("succeed", "fail", "suspend", "time"), deadline)
    for name, scenario in {
        "TrainJob": ordered_jobs(in_place=True),
        "TrainJob, failurePolicy": restarted_jobs(in_place=True),
    }.items():
        transitions = ("succeed", "fail", "suspend", "time")
        yield _case(f"{name}, restarts in place", scenario, transitions, trouble=2)


def restarts() -> Iterator[Case]:
    """Back-off and progress, causes, `restart-limit`, stalls (S46, S47), and a 503 in the middle of them."""
    yield _restart_case("TfJob, a failure and progress", tf(), ("fail", "train", "time"), 1)
    kinds = {"MxJob": local(), "PyTorchJob": pytorch(), "ElasticJob": elastic(1, most=1)}
    for name, scenario in kinds.items():
        yield _restart_case(f"{name}, failures and progress", scenario, ("fail", "train", "time"), exits=3)
        yield _restart_case(f"{name}, disruptions and progress", scenario, ("drain", "train", "time"), drains=3)
        causes = replace(scenario, disruptions=CAUSES)
        yield _restart_case(f"{name}, causes", causes, ("drain", "fail", "dying pass"), trouble=2, drains=2)
    for name, scenario in {"PyTorchJob": pytorch(), "ElasticJob": elastic(1, most=2)}.items():
        limited = with_limit(scenario, 1, 100)
        yield _restart_case(f"{name}, restart-limit", limited, ("fail", "drain", "train", "time"), exits=3)
        in_place = pytorch("OnFailure") if name == "PyTorchJob" else elastic(1, "OnFailure", most=1)
        in_place = with_limit(in_place, 1, 1000)
        yield _restart_case(f"{name}, restart-limit, restarts in place", in_place, ("fail", "drain", "dying pass"))
        for action in ("report", "restart"):
            stalling = with_stalls(scenario, action)
            yield _restart_case(f"{name}, on-stall {action}", stalling, ("stall", "fail", "dying pass", "time"), 2)
        for title, transitions in {
            "503 in the middle of a restart": ("failing pass", "fail", "drain", "suspend"),
            "503 and old views": ("failing pass", "fail", "suspend", "remember", "mixed pass"),
        }.items():
            yield _restart_case(f"{name}, {title}", scenario, transitions, 1)


CAUSES = {
    "PreemptionByScheduler": "preemption",
    "DeletionByTaintManager": "node-lost",
    "EvictionByEvictionAPI": "eviction",
}


def with_limit(scenario: Scenario, count: int, seconds: int) -> Scenario:
    annotations = {**scenario.annotations, "trainyard.dev/restart-limit": f"{count}/{seconds}s"}
    return replace(scenario, annotations=annotations, restart_limit=(count, seconds))


def with_stalls(scenario: Scenario, action: str) -> Scenario:
    return replace(scenario, annotations={**scenario.annotations, PROGRESS_DEADLINE: "10m", ON_STALL: action})


def _restart_case(name: str, scenario: Scenario, transitions: Iterable[str], trouble: int = 3, **bounds: int) -> Case:
    initial_state = InitialState({}, scenario, bounds=Bounds(trouble, time=2, **bounds))
    return Case(name, initial_state, frozenset(["pass", "unasked", *transitions]))


def _case(
    name: str,
    scenario: Scenario,
    transitions: Iterable[str],
    policies: Mapping[str, object] | None = None,
    trouble: int = 1,
) -> Case:
    bounds = Bounds(trouble=trouble, edits=trouble, time=1)
    return Case(
        name, InitialState(dict(policies or {}), scenario, bounds=bounds), frozenset(["pass", "unasked", *transitions])
    )


def policies() -> Iterator[Case]:
    """The table of policies."""
    transitions = frozenset(["pass", "unasked", "succeed", "fail", "time"])
    for clean in ("", "None", "Running", "All"):
        for limit in (None, 0, 1):
            for ends in ({}, {"ttlSecondsAfterFinished": 5}, {"activeDeadlineSeconds": 30}):
                spec: dict[str, object] = {"cleanPodPolicy": clean, "backoffLimit": limit, **ends}
                set_fields = {name: value for name, value in spec.items() if value not in ("", None)}
                policies = ", ".join(f"{name} {value}" for name, value in set_fields.items()) or "no policy"
                yield Case(policies, InitialState(set_fields, bounds=Bounds(trouble=1, time=2)), transitions)
    stopped = _scene(activeDeadlineSeconds=30, cleanPodPolicy="All")
    yield Case("a deadline and suspend", stopped, frozenset(["pass", "unasked", "suspend", "time"]))


def big() -> Iterator[Case]:
    """More trouble in one history, and views in which the operator also dies in the middle of a pass."""
    yield Case("two troubles", InitialState(bounds=Bounds(trouble=2, time=2)), EVERY - {"remember"})
    for name in ("fail", "drain", "delete pod", "delete job", "suspend", "edit", "edit early", "delete"):
        transitions = frozenset([*ALWAYS, *VIEWS, "time", name])
        yield Case(f"old views, {name}", InitialState(bounds=SMALL), transitions)
    yield Case("two failures of two", _scene(backoffLimit=1, trouble=3), frozenset([*ALWAYS, "fail", "drain", "time"]))
    yield Case("a default PS, all else", InitialState(scenario=tf(default_ps=True), bounds=SMALL), EVERY - {"remember"})
    for name, scenario in {"TfJob": tf(), "gang": gang(), "elastic": elastic(1, most=2), "chainer": chainer(1)}.items():
        yield _case(f"{name}, old views, two troubles", scenario, (*VIEWS, "fail", "suspend"), trouble=2)
    yield _case("PyTorchJob, two troubles", pytorch(), EVERY - {"remember"}, trouble=2)
    yield _case("PyTorchJob, old views, two troubles", pytorch(), (*VIEWS, "fail", "suspend"), trouble=2)
    yield _case("JAXJob, three troubles", jax(most=3), ("fail", "suspend", "edit", "time"), trouble=3)
    yield _case("TFJob, two troubles", tensorflow(), EVERY - {"remember"}, trouble=2)
    yield _case("one local worker, two troubles", local(), EVERY - {"remember"}, trouble=2)
    yield _case("gang, people and failures", gang(), ("fail", "delete pod", "delete job", "time"), trouble=2)
    yield _case("gang, edited while it is suspended", gang(), ("suspend", "edit", "succeed"), trouble=2)
    yield _case("chainer, people, old views", chainer(1), (*VIEWS, "meddle", "edit", "delete job"), trouble=2)
    yield _case("gang, dying, two troubles", gang(), ("dying pass", "fail", "suspend"), trouble=2)
    yield _case("elastic, dying, two troubles", elastic(), ("dying pass", "fail", "edit", "time"), trouble=2)
    yield _case("elastic, three troubles", elastic(), ("fail", "suspend", "edit", "time"), trouble=3)
    yield _case("chainer, dying, two edits", chainer(1), ("dying pass", "edit", "succeed"), trouble=2)
    yield _case("chainer, old views, two edits", chainer(1), (*VIEWS, "edit"), trouble=2)
    yield _case("chainer, three edits", chainer(1), ("suspend", "edit"), trouble=3)


def foreign() -> InitialState:
    return InitialState(foreign=f"worker-{RUNTIME_ID}-0", bounds=SMALL)


def _scene(trouble: int = 1, **policies: object) -> InitialState:
    return InitialState(policies, bounds=Bounds(trouble=trouble, time=1))


def main(explored_jobs: Callable[[], Iterable[Case]]) -> None:
    """Explore all initial states, one process for each core. A broken rule ends it with the history of that world."""
    total, began = 0, time.monotonic()
    every = tuple(explored_jobs())
    with ProcessPoolExecutor(os.cpu_count(), get_context("fork")) as processes:
        visits = processes.map(partial(_visit, explored_jobs), range(len(every)))
        for case, (worlds, seconds) in zip(every, visits, strict=True):
            total += worlds
            print(f"{worlds:8} worlds  {seconds:6.1f} s  {case.name}", flush=True)
    print(f"{total:8} worlds  {time.monotonic() - began:6.1f} s  every rule holds")


def _visit(explored_jobs: Callable[[], Iterable[Case]], index: int) -> tuple[int, float]:
    """How many worlds that case has, and how long it took. A kind has functions in it, so a case cannot be sent."""
    case, start = tuple(explored_jobs())[index], time.monotonic()
    gc.disable()  # worlds are tuples without cycles: to look through them again and again took a sixth of the time
    worlds = explore(case.initial_state, transitions=case.transitions).worlds
    gc.collect()
    return worlds, time.monotonic() - start


if __name__ == "__main__":
    main(big if "--big" in sys.argv else small)
