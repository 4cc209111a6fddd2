"""`trainyard convert FILE...`: manifests of jobs for another API, and what of them it cannot have. Offline."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from trainyard import kinds
from trainyard.cli.command import manifests
from trainyard.cli.command.codes import FAILED, INVALID
from trainyard.cli.output.layout import note, note_problems
from trainyard.cli.scripts.job_maker import create_file
from trainyard.conversion import KUBEFLOW, TARGETS, TRAINJOB, is_convertible
from trainyard.conversion import convert as convert_job
from trainyard.conversion.documents import SourceDocument, split_documents
from trainyard.objects import Json, Problem, name_of
from trainyard.objects.manifest import Document, ManifestError
from trainyard.objects.yaml_text import as_yaml

MISSING = {
    KUBEFLOW: "no TfJob, MxJob, ChainerJob or ElasticJob; the output is the input",
    TRAINJOB: "no job of a kind that has a TrainJob; the output is the input",
}


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--to",
    "target",
    type=click.Choice(TARGETS),
    default=KUBEFLOW,
    show_default=True,
    help="API of the result: kubeflow.org/v1, or TrainJob of Kubeflow Trainer.",
)
@click.option("-o", "--output", metavar="FILE", help="File for the result; it must not exist.  [default: stdout]")
def convert(files: tuple[str, ...], target: str, output: str | None) -> None:
    """Convert jobs to kubeflow.org/v1 or to TrainJob, without a cluster. - is standard input.

    Fields that cannot be mapped are named on stderr. Other documents are copied as they are; comments in converted ones
    are lost. Exit code 1 if a field cannot be mapped, 2 if an input is invalid.

    Example: trainyard convert --to trainjob examples/pytorch_job.yaml
    """
    try:
        sources = _load(files)
        _check(files, [document for source in sources for document in source.objects], target)
        texts, unmapped = [], 0
        for source in sources:
            text, count = _converted_text(source, target)
            texts.append(text)
            unmapped += count
        result = "---\n".join(text if text.endswith("\n") else f"{text}\n" for text in texts)
        if output:
            create_file(Path(output), result)
    except ManifestError as error:
        note_problems(error.problems)
        sys.exit(INVALID)
    if not output:
        click.echo(result, nl=False)
    if not any(is_convertible(document.obj, target) for source in sources for document in source.objects):
        note(MISSING[target])
    sys.exit(FAILED if unmapped else 0)


def _load(files: tuple[str, ...]) -> list[SourceDocument]:
    sources: list[SourceDocument] = []
    problems: list[Problem] = []
    for file in files:
        try:
            sources += split_documents(manifests.read_file(file).decode("utf-8-sig"), manifests.source_name(file))
        except ManifestError as error:
            problems += error.problems
        except OSError as error:
            problems.append(manifests.unreadable(file, error))
        except UnicodeDecodeError:
            problems.append(
                Problem(f"{manifests.source_name(file)}:1: encoding", "is not UTF-8 text; save it as UTF-8")
            )
    if problems:
        raise ManifestError(problems)
    return sources


def _check(files: tuple[str, ...], documents: list[Document], target: str) -> None:
    """Raise ManifestError with the problems of the jobs that are to be converted, as `lint` finds them."""
    problems: list[Problem] = []
    for document in documents:
        kind = kinds.kind_of(document.obj)
        if kind and is_convertible(document.obj, target):
            problems += manifests.admit(document, kind)[1]
    if problems:
        raise ManifestError(manifests.by_line(problems, files))


def _converted_text(source: SourceDocument, target: str) -> tuple[str, int]:
    """The text of a document after the conversion, and the number of fields that were not mapped."""
    converted = [_convert(document, target) for document in source.objects]
    unmapped = sum(count for _, count in converted)
    if not any(objects for objects, _ in converted):
        return source.text.removeprefix("\n"), unmapped
    if any(line.lstrip().startswith("#") for line in source.text.splitlines()):
        note(f"{source.objects[0].object_location}: note: the comments of this document are not kept")
    objects = [
        obj
        for document, (results, _) in zip(source.objects, converted, strict=True)
        for obj in (results or [document.obj])
    ]
    if source.is_list:
        return as_yaml({"apiVersion": "v1", "kind": "List", "items": objects}), unmapped
    return "---\n".join(map(as_yaml, objects)), unmapped


def _convert(document: Document, target: str) -> tuple[list[Json], int]:
    """The objects in place of a job, [] for an object that stays as it is, and the number of fields not mapped."""
    if not is_convertible(document.obj, target):
        return [], 0
    conversion = convert_job(document.obj, target)
    for problem in conversion.unmapped:
        note(f"{manifests.with_place(document, problem).path}: not mapped: {problem.text}")
    for remark in conversion.notes:
        note(manifests.remark(document, "note", remark))
    if conversion.objects:
        note(_summary(document.obj, conversion.objects, len(conversion.unmapped)))
    return conversion.objects, len(conversion.unmapped)


def _summary(job: Json, objects: list[Json], unmapped: int) -> str:
    results = " and ".join(str(obj["kind"]) for obj in objects)
    fields = "1 field is" if unmapped == 1 else f"{unmapped} fields are"
    rest = f"; {fields} not mapped" if unmapped else ""
    return f"{job['kind']} {name_of(job)}: {results}{rest}"
