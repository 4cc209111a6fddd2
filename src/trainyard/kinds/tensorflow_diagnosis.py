"""What `trainyard why` knows of TensorFlow's output, for the kinds that start it."""

from __future__ import annotations

from trainyard.core.diagnosis import OutputPattern

OUTPUT_PATTERNS = (
    OutputPattern(
        r"convert a value \(PerReplica:",
        "fit() of Keras 3 does not work under a strategy of several workers",
        "write the training loop yourself: strategy.run in a tf.function",
    ),
)
