"""A running replica whose last lines are a traceback: frameworks wait for the others when Python ends."""

from __future__ import annotations

import pytest

from tests.views.why_values import RUNNING, diagnose, pod, tfjob
from trainyard.core.diagnosis import BLOCK, FINE, WAIT, Finding
from trainyard.views.usage_view import ReplicaUsage

# What these print, as recorded: the program hangs after its last line, and so do its peers.
JAX = """step 20 loss 0.51
Traceback (most recent call last):
  File "/home/ann/jx.py", line 15, in <module>
    main()
  File "/home/ann/jx.py", line 11, in main
    raise ValueError(f"bad batch {step}")
ValueError: bad batch 7"""
MXNET = """[12:00:01] [kvstore] node 2 is ready
Traceback (most recent call last):
  File "/home/ann/mx.py", line 30, in <module>
    trainer.step(batch)
  File "/usr/lib/python3/dist-packages/mxnet/gluon/trainer.py", line 334, in step
    self._allreduce_grads()
  File "/home/ann/data.py", line 4, in callback
    raise KeyError("label")
KeyError: 'label'"""
CHAINERMN = """epoch       main/loss   validation/main/loss
1           0.61        0.58
Traceback (most recent call last):
  File "cmn.py", line 9, in <module>
    x = 1 / zero
ZeroDivisionError: division by zero
"""
RAISED = {
    JAX: "ValueError: bad batch 7 at /home/ann/jx.py:11, in main",
    MXNET: "KeyError: 'label' at /home/ann/data.py:4, in callback",
    CHAINERMN: "ZeroDivisionError: division by zero at cmn.py:9",
}


def findings_of(output: str, cpu: float | None, is_measured: bool = True) -> list[Finding]:
    raising = pod("WORKER-1")
    logs = {(raising["metadata"]["uid"], "tensorflow"): tuple(output.split("\n"))}
    usage = ReplicaUsage("worker-1", "worker", "Running", raising["metadata"]["name"], "here", cpu=cpu)
    usages = (usage,) if is_measured else ()
    return diagnose(tfjob(RUNNING), pod("MASTER-0"), pod("WORKER-0"), raising, logs=logs, usages=usages)


def first_finding(output: str, cpu: float | None = None) -> tuple[int, str]:
    finding = findings_of(output, cpu)[0]
    return finding.level, finding.summary


@pytest.mark.parametrize("output", RAISED)
def test_it_has_raised_and_has_not_ended(output: str) -> None:
    assert first_finding(output, 0.0) == (BLOCK, f"worker-1: it has raised {RAISED[output]} and has not ended")


@pytest.mark.parametrize("output", [*RAISED, f"ERROR:root:retrying\n{JAX.partition(chr(10))[2]}"])
@pytest.mark.parametrize("is_measured", [True, False])
def test_without_a_measured_cpu_it_may_have_caught_the_exception(output: str, is_measured: bool) -> None:
    """As on a cluster without metrics-server; logging.exception() writes a traceback, too."""
    words = f"its last lines are a traceback, {RAISED.get(output, RAISED[JAX])}; it may wait for the others, or work on"
    finding = findings_of(output, None, is_measured)[0]
    assert (finding.level, finding.summary) == (WAIT, f"worker-1: {words}")
    assert "end the job" not in finding.fix


def test_one_that_works_on_may_have_caught_it() -> None:
    words = "its last lines are a traceback, ValueError: bad batch 7 at /home/ann/jx.py:11, in main, and it works on"
    assert first_finding(JAX, 0.9) == (WAIT, f"worker-1: {words}")


@pytest.mark.parametrize(
    "output",
    [
        f"{JAX}\nskipped, going on",
        JAX.replace("Traceback", "Exception ignored in: <function f>\nTraceback"),
        JAX.rpartition("\n")[0],  # it is being written
        f"{JAX.rpartition(chr(10))[0]}\nKeyboardInterrupt",
    ],
)
def test_other_output_is_no_finding(output: str) -> None:
    assert first_finding(output)[0] == FINE
