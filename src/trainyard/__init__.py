"""Trainyard trains distributed jobs: the same YAML as processes on one machine and as pods on Kubernetes."""

__version__ = "0.1.0"


def report(**values: float) -> None:
    """Report the progress of a training: `trainyard.report(step=10, loss=0.4)`. `trainyard top` shows it. Does nothing
    where no Trainyard node runs the program ($TRAINYARD_METRICS is not set), and never raises OSError."""
    import contextlib
    import json
    import os

    if path := os.environ.get("TRAINYARD_METRICS"):
        with contextlib.suppress(OSError), open(path, "a") as file:
            file.write(json.dumps({name: float(value) for name, value in values.items()}) + "\n")
