"""Attacks use the clusters of other rooms' tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "node"))  # pytest does the same, but only for what it collects
