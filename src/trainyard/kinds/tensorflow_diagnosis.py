"""What `trainyard why` knows of TensorFlow's output, for the kinds that start it."""

from __future__ import annotations

from trainyard.core.diagnosis import OutputPattern

OUTPUT_PATTERNS = (
    OutputPattern(
        r"convert a value \(PerReplica:",
        "fit() of Keras 3 does not work under a strategy of several workers",
        "write the training loop yourself: strategy.run in a tf.function",
    ),
    # Learned from TensorFlow 2.21 (findings/tensorflow-preemption-exit-code.sh): the one line that it prints before it
    # ends with 42, which restartPolicy ExitCode takes for a permanent failure.
    OutputPattern(
        r"PreemptionCheckpointHandler\.total_run_calls",
        "a worker got SIGTERM, and TensorFlow's PreemptionCheckpointHandler ended all workers after a checkpoint",
        "pass termination_config=TerminationConfig(exit_fn=lambda: sys.exit(143)) to the handler: 143 is tried again",
        before_exceptions=False,
    ),
)
