"""The first hour in a terminal, as an animated picture: real commands, with shorter waits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tools.pictures import jobs
from tools.pictures.animation import svg
from tools.pictures.recording import recording

TITLE = "The first commands of Trainyard in a terminal: run, up, submit, get, why, top and ui"
RUNNING = jobs.pytorch_job("digits", 3, jobs.training(jobs.STEPS, 0.05, slow=2))
FAILED = jobs.pytorch_job("bert-finetune", 1, ["python", "-c", jobs.MISSING])


def pictures(cluster: jobs.Cluster, folder: Path) -> Iterator[Path]:
    """Write first-hour.svg."""
    files = " ".join(cluster.save(job).name for job in (RUNNING, FAILED))
    with recording(cluster.environment, cluster.folder) as session:
        session.command("trainyard run --workers 2 train.py")
        session.clear()
        session.command('eval "$(trainyard up)"')
        session.command(f"trainyard submit {files}")
        cluster.wait("bert-finetune", "Failed")
        cluster.wait_for_step("digits", 100)
        session.command("trainyard get")
        session.clear()
        session.command("trainyard why bert-finetune")
        session.command("trainyard top digits", key="q", draws=3)
        session.command("trainyard ui")
    path = folder / "first-hour.svg"
    path.write_text(svg(session.frames, TITLE), encoding="utf-8")
    yield path
