"""The operator's process within a test's own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from trainyard.app.operating import OperatorOptions, OperatorProcess


@asynccontextmanager
async def operating(options: OperatorOptions, seconds: float = 1.0) -> AsyncIterator[OperatorProcess]:
    """It runs within the block, and ends within so many seconds after it, whatever the API server does."""
    operator_process, stop = OperatorProcess(options), asyncio.Event()
    task = asyncio.create_task(operator_process.run(stop))
    try:
        yield operator_process
    finally:
        stop.set()
        began = time.monotonic()
        await task
        assert time.monotonic() - began < seconds
