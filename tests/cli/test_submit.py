"""`trainyard submit` alone. Its stories on a cluster are in test_commands_story.py."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.samples import sample
from trainyard import kinds
from trainyard.cli import logs, submit
from trainyard.cli.command.cluster_command import ClusterContext
from trainyard.cli.command.jobs import JobInfo
from trainyard.objects import Json


async def test_an_interrupted_submit_says_that_its_jobs_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def interrupted(*arguments: object) -> list[Json]:
        raise asyncio.CancelledError

    monkeypatch.setattr(logs, "print_logs", interrupted)
    nothing: Any = None
    info = JobInfo(kinds.TFJOB, sample("TfJob"))
    with pytest.raises(asyncio.CancelledError):
        await submit._wait_until_ended(ClusterContext(nothing, "default", nothing), [info], True, None)
    assert capsys.readouterr().err == f"interrupted; the jobs go on: tfjob/{info.name}\n"
