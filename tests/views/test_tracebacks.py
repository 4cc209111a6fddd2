"""The exception that ended a Python program, and the line of the user's code that led to it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trainyard.core.diagnosis import ContainerContext, MissingModules
from trainyard.kinds import ELASTICJOB
from trainyard.objects.structs import replace
from trainyard.views.diagnosis.output import cause_of, ports_in
from trainyard.views.diagnosis.tracebacks import last_exception

LOCAL = ContainerContext(on_process_node=True, interpreter="/venv/bin/python")


def output_of(folder: Path, code: str) -> list[str]:
    """What a real interpreter prints of that program."""
    (folder / "train.py").write_text(code)
    done = subprocess.run([sys.executable, "train.py"], cwd=folder, capture_output=True, text=True, check=False)
    return [line for line in done.stderr.splitlines() if line]


PROGRAMS = (
    ("import json\njson.loads('{')", "JSONDecodeError: Expecting property name enclosed in double quotes", 2),
    ("def f():\n    return {}['rate']\nf()", "KeyError: 'rate'", 2),
    ("assert False", "AssertionError", 1),
    ("raise ValueError('a\\nb')", "ValueError: a", 1),
    (
        "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise RuntimeError('no data') from e",
        "RuntimeError: no data",
        4,
    ),
    ("x = (\n", "SyntaxError", 1),
    ("class Mine(Exception): pass\nraise Mine('x' * 500)", "Mine: xxx", 2),
)


@pytest.mark.parametrize(("code", "text", "line"), PROGRAMS, ids=[text for _, text, _ in PROGRAMS])
def test_the_exception_and_the_users_own_line(tmp_path: Path, code: str, text: str, line: int) -> None:
    raised = last_exception(output_of(tmp_path, code))
    assert raised is not None and raised.text.startswith(text) and len(raised.text) <= 160
    assert raised.file.endswith("train.py") and raised.line == line


def test_output_without_a_traceback_has_none() -> None:
    assert last_exception(["step 1", "ValueError: this is only a log line"]) is None


def test_output_before_the_exception_is_not_the_cause() -> None:
    lines = ["warning: Connection refused, trying again", "Traceback (most recent call last):"]
    lines += ['  File "/a/train.py", line 7, in train', "    rate[0]", "KeyError: 'rate'"]
    assert cause_of(lines, 1, "Error", LOCAL).explanation == "KeyError: 'rate' at /a/train.py:7, in train"


def test_a_message_of_mpirun_inside_a_traceback_is_not_part_of_it() -> None:
    """Open MPI's text of MPI_ABORT, between two lines of the traceback of the rank that aborts. Its NOTE looks like an
    exception. Lines of the program that look like the rule of a message hide no traceback."""
    rule = "-" * 74
    message = [rule, "MPI_ABORT was invoked on rank 1", "NOTE: invoking MPI_ABORT causes Open MPI to kill all.", rule]
    frames = ["Traceback (most recent call last):", '  File "/a/train.py", line 7, in <module>']
    end = ['    raise ValueError("negative")', "ValueError: negative"]
    for lines in (frames + message + end, [rule, *frames, *end, *message], [*frames, rule, *end]):
        raised = last_exception(lines)
        assert raised is not None and (raised.text, raised.line) == ("ValueError: negative", 7)


def test_words_in_stack_frames_are_not_the_cause() -> None:
    lines = ["Traceback (most recent call last):", '  File "/a/train.py", line 7, in train', "    getaddrinfo(host)"]
    assert "resolved" not in cause_of([*lines, "TimeoutError: timed out"], 1, "Error", LOCAL).explanation


def test_a_launchers_report_names_the_failed_process() -> None:
    lines = ["ModuleNotFoundError: No module named 'data'", "Traceback (most recent call last):"]
    lines += [
        '  File "/x/site-packages/torch/run.py", line 1, in main',
        "torch.errors.ChildFailedError: train.py FAILED",
    ]
    assert "no module data" in cause_of(lines, 1, "Error", LOCAL).explanation


@pytest.mark.parametrize(
    ("code", "reason", "limit", "says", "not_says"),
    [
        (137, "OOMKilled", "64Mi", "more memory than its limit of 64Mi", "SIGKILL"),
        (137, "OOMKilled", "", "it has no memory limit of its own", "its limit of"),
        (137, "Error", "", "killed with SIGKILL; it has no memory limit", "raise"),
        (137, "Error", "1Gi", "not by its memory limit of 1Gi", "no memory limit"),
    ],
)
def test_memory_limits_are_mentioned_where_there_are_any(
    code: int, reason: str, limit: str, says: str, not_says: str
) -> None:
    cause = cause_of(["Connection refused"], code, reason, ContainerContext(on_process_node=True, memory_limit=limit))
    assert says in cause.explanation and not_says not in " ".join(cause)
    assert "dmesg | grep -i oom" in cause.fix if reason == "Error" else "lower what" in cause.fix


MODULE = ["Traceback (most recent call last):", '  File "/a/t.py", line 1, in <module>', "    import x"]


@pytest.mark.parametrize(
    ("name", "around", "fix"),
    [
        ("cv2", LOCAL, "`/venv/bin/python -m pip install opencv-python`"),
        (
            "cv2",
            ContainerContext(on_process_node=True, interpreter="/c/environments/a-1/bin/python"),
            "in your catalogue (--images)",
        ),
        ("cv2", ContainerContext(image="team/train:1"), "install opencv-python into the image team/train:1"),
        ("tensorflow.contrib", LOCAL, "this version of it has no tensorflow.contrib"),
    ],
)
def test_a_module_is_installed_where_its_python_is_from(name: str, around: ContainerContext, fix: str) -> None:
    assert fix in cause_of([*MODULE, f"ModuleNotFoundError: No module named '{name}'"], 1, "Error", around).fix


def test_ports_that_a_line_names() -> None:
    lines = ["server.bind(('127.0.0.1', 2222))", "bind: [::]:8080", "port 29500 at 12:34:56, loss 0.5, took 99999 s"]
    assert {2222, 8080, 29500} <= set(ports_in(lines)) and 99999 not in ports_in(lines)


OWN_PACKAGE = replace(LOCAL, modules=MissingModules(packages={"pkg": "/home/ann"}))
SYSTEM = replace(
    LOCAL,
    modules=MissingModules(interpreters={"torch": "/usr/bin/python3"}),
    module_fixes=ELASTICJOB.diagnosis.module_fixes,
)


@pytest.mark.parametrize(
    ("name", "around", "fix", "not_fix"),
    [
        ("mine", LOCAL, "`--env PYTHONPATH=FOLDER` (run SCRIPT)", "name its folder in PYTHONPATH"),
        ("pkg.nomod", OWN_PACKAGE, "write /home/ann/pkg/nomod.py", "pip show"),
        (
            "torch",
            SYSTEM,
            "`--python /usr/bin/python3`; or `/venv/bin/python -m pip install torch`; or `make fra",
            "own",
        ),
    ],
)
def test_a_missing_module_is_reported_with_where_it_is_installed(
    name: str, around: ContainerContext, fix: str, not_fix: str
) -> None:
    cause = cause_of([*MODULE, f"ModuleNotFoundError: No module named '{name}'"], 1, "Error", around)
    assert fix in cause.fix and not_fix not in cause.fix


@pytest.mark.parametrize(
    ("line", "explanation", "fix"),
    [
        ("python: can't open file '/root/t.py': [Errno 13] Permission denied", "it may not read /root/t.py", "ls -l"),
        ('exec: "/home/ann/t.py": permission denied', "/home/ann/t.py may not be executed", "`python /home/ann/t.py`"),
    ],
)
def test_a_file_that_may_not_be_used_is_named(line: str, explanation: str, fix: str) -> None:
    cause = cause_of([line], 2, "Error", LOCAL)
    assert explanation in cause.explanation and fix in cause.fix and "[sh," not in cause.fix


def test_a_pod_lost_with_its_node_is_not_reported_as_killed() -> None:
    lost = cause_of(["step 1"], 137, "ContainerStatusUnknown", LOCAL)
    assert "the process of its node that ran it ended" in lost.explanation
    assert "SIGKILL" not in lost.explanation and "oom" not in lost.fix
