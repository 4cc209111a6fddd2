"""How often the garbage collector of Python looks for cycles in the processes of Trainyard."""

from __future__ import annotations

import gc


def collect_seldom() -> None:
    """Look through new objects after each 100,000.

    Imports and a start make about 100,000 objects that stay. To look through them after each 700 new ones, as Python
    does by default, costs a seventh of the processor time of `trainyard run` of a small script, and a third of what a
    list of 1,000 PodMetrics takes in the background cluster."""
    gc.set_threshold(100_000, 20, 20)


def skip_present_objects() -> None:
    """Exclude the objects that exist now from all later collections. To be called when a process has imported its
    modules: the first collection took 42 ms of an operator, for which its ninth job waited. What nothing refers to is
    freed all the same; only cycles among these objects stay."""
    gc.freeze()
