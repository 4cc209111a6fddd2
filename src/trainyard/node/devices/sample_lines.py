"""The output of the programs that sample devices (nvml_samples.py, kfd_samples.py), which sampler.py reads."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable


def print_samples(read: Callable[[], str], seconds: float, count: int) -> None:
    """Print a sample, one line, every `seconds` seconds. Returns after `count` lines (0: no limit), or when nobody
    reads them any more."""
    number = 0
    try:
        while not count or number < count:
            if number:
                time.sleep(seconds)
            sys.stdout.write(read() + "\n")
            sys.stdout.flush()
            number += 1
    except BrokenPipeError:
        sys.stderr.close()  # no message about it at the end
