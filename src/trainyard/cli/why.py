"""`trainyard why JOB`: print why a job does not run or why it failed, or that it runs without a problem."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from trainyard.cli.command import options
from trainyard.cli.command.cluster_command import ClusterContext, is_local, print_output, run_with_cluster
from trainyard.cli.command.job_names import recorded_job_names
from trainyard.cli.output.layout import note, terminal_width
from trainyard.cli.output.printing import as_json, as_yaml
from trainyard.objects import Json
from trainyard.objects.structs import replace

if TYPE_CHECKING:
    from trainyard.cli.command.jobs import JobInfo
    from trainyard.views.diagnosis import Facts, JobDiagnosis


@click.command()
@click.argument("job", shell_complete=recorded_job_names)
@options.cluster
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="Output format.")
def why(job: str, output: str | None, **params: Any) -> None:
    """Explain why a job does not run or has failed: the cause, where it is, the evidence, and the fix.

    A job that is not in the cluster is read from the history of this machine.

    Example: trainyard why mnist
    """
    run_with_cluster(
        params,
        lambda context: _why(context, job, output or ""),
        lambda: _from_history(job, params["namespace"], output or ""),
        reads=True,
    )


async def _why(context: ClusterContext, job: str, form: str) -> None:
    from trainyard.app.evidence.facts import gather_facts
    from trainyard.cli.command.jobs import get_job
    from trainyard.cli.command.manifests import may_give_out
    from trainyard.kinds import notes
    from trainyard.views.diagnosis import diagnose

    info = await get_job(context, job)
    facts = await gather_facts(context.api, info.kind, info.job)
    if await is_local(context):
        facts = replace(facts, notes=tuple(notes(info.kind, info.job, may_give_out)))
    _print(facts, diagnose(facts), form)


def _from_history(job: str, namespace: str, form: str) -> bool:
    """Print the findings about a job in the history. False when the history has no such job or no readable record."""
    from trainyard.app.history.recorded_job import diagnosis_of, facts_of
    from trainyard.cli.session.history_logs import last_record

    record = last_record(job, namespace)
    facts = facts_of(record) if record else None
    if record is None or facts is None:
        return False
    _print(facts, diagnosis_of(record, facts), form)
    return True


def _print(facts: Facts, diagnosis: JobDiagnosis, form: str) -> None:
    from trainyard.cli.output.findings import format_findings

    if form:
        print_output((as_json if form == "json" else as_yaml)(diagnosis.to_json()))
    else:
        print_output("\n".join(format_findings(facts, diagnosis.findings, width=terminal_width(1))))
    if facts.refused:
        note(f"You may not {', '.join(facts.refused)}: what depends on it is missing here.")


async def finding_lines(context: ClusterContext, info: JobInfo, job: Json, max_evidence_lines: int = 5) -> list[str]:
    """The findings about a job as lines, at most `max_evidence_lines` lines of evidence each: for commands that have
    read the job."""
    from trainyard.app.evidence.facts import gather_facts
    from trainyard.cli.output.findings import format_findings
    from trainyard.views.diagnosis import why

    facts = await gather_facts(context.api, info.kind, job)
    return list(format_findings(facts, why(facts), max_evidence_lines, terminal_width(2)))


async def doubt_lines(context: ClusterContext, info: JobInfo, job: Json) -> list[str]:
    """As finding_lines, for a job that has succeeded; [] if its success is not in doubt."""
    from trainyard.core import Config, parse_job

    if not parse_job(info.kind, job, Config()).worker_slots():
        return []
    from trainyard.app.evidence.facts import gather_facts
    from trainyard.cli.output.findings import format_findings
    from trainyard.views.diagnosis import doubts

    facts = await gather_facts(context.api, info.kind, job)
    findings = doubts(facts)
    return list(format_findings(facts, findings, 5, terminal_width(2))) if findings else []
