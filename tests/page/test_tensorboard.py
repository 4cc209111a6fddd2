"""Our reader of event files beside TensorBoard's own, on files that TensorFlow writes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from trainyard.app.catalogues import cache_folder
from trainyard.node.images import Images
from trainyard.page.event_series import EventSeries

pytestmark = [pytest.mark.frameworks, pytest.mark.slow]

WRITE = """
import json, sys
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray
folder = sys.argv[1]
writer = tf.summary.create_file_writer(folder + "/v2")
with writer.as_default():
    for step in range(20):
        tf.summary.scalar("loss", 2 / (1 + step), step=step)
        tf.summary.scalar("steps", tf.constant(step * 1000, tf.int64), step=step)
        tf.summary.histogram("weights", tf.random.normal([100]), step=step)
        tf.summary.image("image", tf.zeros([1, 64, 64, 3]), step=step)
    tf.summary.text("text", "hello", step=1)
writer.close()
with tf.compat.v1.Graph().as_default():
    with tf.compat.v1.summary.FileWriter(folder + "/v1") as writer:
        for step in range(20):
            value = tf.compat.v1.Summary.Value(tag="accuracy", simple_value=step / 20)
            writer.add_summary(tf.compat.v1.Summary(value=[value]), step)
read = {}
for run in ("v1", "v2"):
    accumulator = EventAccumulator(folder + "/" + run, size_guidance={"scalars": 0, "tensors": 0})
    accumulator.Reload()
    tags = accumulator.Tags()
    for tag in tags["scalars"]:
        read[run + "/" + tag] = [[e.step, e.wall_time, e.value] for e in accumulator.Scalars(tag)]
    for tag in tags["tensors"]:
        if accumulator.SummaryMetadata(tag).plugin_data.plugin_name == "scalars":
            read[run + "/" + tag] = [
                [e.step, e.wall_time, float(make_ndarray(e.tensor_proto))] for e in accumulator.Tensors(tag)
            ]
print(json.dumps(read))
"""


async def test_scalars_are_those_that_tensorboard_reads(tmp_path: Path) -> None:
    images = Images([], cache_folder(), print)
    prepared = await images.prepare("tensorflow/tensorflow:2.21.0", need_command=False)
    python = str(Path(prepared.path[0]) / "python")
    result = subprocess.run(  # noqa: ASYNC221
        [python, "-c", WRITE, str(tmp_path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert result.returncode == 0, result.stderr
    expected = json.loads(result.stdout.splitlines()[-1])
    assert {name: len(points) for name, points in expected.items()} == {
        "v1/accuracy": 20,
        "v2/loss": 20,
        "v2/steps": 20,
    }
    events = EventSeries().read([tmp_path], 0.0, None)
    assert {name: [[p.step, p.time, p.value] for p in points] for name, points in events.items()} == expected
