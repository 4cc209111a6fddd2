"""Scripts and the jobs that are made of them, as the tests of `run SCRIPT` and `init` need them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainyard.cli.scripts.command_line import ProgramArguments
from trainyard.cli.scripts.job_maker import ProgramJob, make_job

NOTHING: dict[str, Any] = {
    "workers": None,
    "ps": None,
    "nproc": None,
    "gpus": None,
    "least": None,
    "most": None,
    "framework": None,
    "api": None,
    "name": None,
    "env": (),
    "image": None,
    "mounts": (),
}


def script(folder: Path, text: str = "", name: str = "train.py") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def program_job(path: Path | str, *arguments: str, form: Any = "script", **options: Any) -> ProgramJob:
    """The job of a script with these options of the command line."""
    return make_job(ProgramArguments(form, str(path), arguments), {**NOTHING, **options})
