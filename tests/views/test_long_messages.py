"""The place of an exception whose message, or whose frames, are longer than what is shown of an output."""

from __future__ import annotations

import pytest

from tests.views.why_values import diagnose, ended, pod, tfjob
from trainyard.objects import Json

HEAD = ("Traceback (most recent call last):", '  File "/home/ann/tfw.py", line 8, in <module>', "    model.fit(data)")
KERAS = '  File "/usr/lib/python3/dist-packages/keras/src/utils/traceback_utils.py", line 122, in error_handler'
KERAS_3 = "fit() of Keras 3 does not work under a strategy of several workers"
ROWS = [f" [{number} 0 1]" for number in range(60)]
BATCH = (
    *HEAD,
    KERAS,
    "ValueError: Attempt to convert a value (PerReplica:{",
    "  0: tf.Tensor(",
    *ROWS,
    "}) to a Tensor.",
)
OPEN = (*HEAD, "ValueError: no such shape: [", *ROWS, "]")
FRAMES = (*HEAD, *[KERAS] * 50, "ValueError: bad shape")
CAUGHT = (*HEAD, "ValueError: bad shape", *(f"step {number}" for number in range(60)), "giving up")


def summary_of(lines: tuple[str, ...]) -> str:
    failed: Json = tfjob(("Failed", "PermanentFailure", "failed"))
    replica = pod("MASTER-0", {"state": ended(1), "restartCount": 0}, "Failed")
    return diagnose(failed, replica, logs={("p-MASTER-0", "tensorflow"): lines})[0].summary


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (
            BATCH,
            f"{KERAS_3} (ValueError at /home/ann/tfw.py:8)",
        ),
        (OPEN, "ValueError: no such shape: [ at /home/ann/tfw.py:8"),
        (FRAMES, "ValueError: bad shape at /home/ann/tfw.py:8"),
        (CAUGHT, "an error of the program's own"),
    ],
)
def test_the_place_of_the_users_own_line(lines: tuple[str, ...], words: str) -> None:
    assert summary_of(lines) == f"master-0 ended with exit code 1 (Error): {words}"
