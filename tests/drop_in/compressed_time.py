"""`python -m tests.drop_in.compressed_time operator ...`: `trainyard` with compressed time.

No replica waits for its restart, and no count for the status: a scenario with a failure takes as long as one without.
The recorded operators restart at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from trainyard.__main__ import start
from trainyard.core import observe
from trainyard.core.policies import restart
from trainyard.operator import plan_executor

WAITS = ((restart, "BASE_DELAY"), (observe, "BASE_DELAY"), (plan_executor, "REPLICA_COUNTS_INTERVAL"))


@contextmanager
def compressed_time() -> Iterator[None]:
    """The operators of this process do not wait within the block."""
    with ExitStack() as stack:
        for module, name in WAITS:
            stack.enter_context(patch.object(module, name, 0.0))
        yield


if __name__ == "__main__":
    with compressed_time():
        start()
