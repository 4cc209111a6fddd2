"""tools/job_file_reads.py reports each plain read in a module that handles what jobs wrote."""

from __future__ import annotations

import pytest

from tools.job_file_reads import plain_reads

RECORD = "from trainyard.app.history.records import HistoryRecord\n"


@pytest.mark.parametrize(
    ("call", "is_reported"),
    [
        ("record.logs.joinpath('1.log').open('rb')", True),
        ("path.open()", True),
        ("(record.folder / 'job.yaml').read_text()", True),
        ("path.read_bytes()", True),
        ("path.stat()", True),
        ("record.logs.glob('*/*/*/*.log')", True),
        ("open(path)", True),
        ("open(path, 'rb')", True),
        ("os.open(path, os.O_RDONLY)", True),
        ("os.stat(path)", True),
        ("open(open_log(path), 'rb')", False),
        ("open_file(path, record.logs)", False),
        ("os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)", False),
        ("new_file.open('xb')", False),
        ("forwards.open(job_uid)", False),
        ("path.exists()", False),
    ],
)
def test_a_plain_read_is_reported(call: str, is_reported: bool) -> None:
    assert bool(plain_reads(RECORD + call, "trainyard.page.any")) is is_reported


@pytest.mark.parametrize(
    ("text", "module"),
    [
        ("path.read_text()", "trainyard.app.history.records"),
        ("from trainyard.node.kubelet.api.pod_logs import open_log\npath.stat()", "trainyard.cli.any"),
        ("from trainyard.objects.log_files import pieces\npath.open('rb')", "trainyard.page.any"),
        ("from trainyard.objects import log_files\npath.open('rb')", "trainyard.page.any"),
        ("def f():\n    from trainyard.app.job_files import open_file\n    return open(path)", "trainyard.cli.any"),
    ],
)
def test_what_makes_a_module_one_that_handles_such_files(text: str, module: str) -> None:
    assert plain_reads(text, module)


def test_other_modules_may_read() -> None:
    assert plain_reads("path.read_text()", "trainyard.app.config") == []
