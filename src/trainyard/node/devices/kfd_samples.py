"""`python -m trainyard.node.devices.kfd_samples SECONDS COUNT SYSFS`: print the use of AMD's GPUs every SECONDS
seconds, as nvml_samples.py does.

A program of its own, as nvml_samples.py: the driver answers some files of sysfs only when the GPU does.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from trainyard.node.devices.kfd import amd_usage
from trainyard.node.devices.sample_lines import print_samples

if __name__ == "__main__":
    sysfs = Path(sys.argv[3])
    print_samples(lambda: msgspec.json.encode(amd_usage(sysfs)).decode(), float(sys.argv[1]), int(sys.argv[2]))
