"""The tested matrix of docs/images.md is what the tests of today have run. `make matrix` writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import DECLARED, MARKED_FILES
from tests.support import matrix
from tests.support.matrix import Declaration, Row

FIX = "run the tests with --junitxml=build/junit/NAME.xml, then `make matrix`"
DDP = Declaration("torch", "2.15.0", "DDP", "PyTorchJob", "shared", "")
RUN = Row("torch", "2.15.0", "3.11", "DDP", "PyTorchJob", "shared")


def test_every_declared_training_is_recorded(pytestconfig: pytest.Config) -> None:
    """Of the files that this run has collected: in `make test-local`, all."""
    declared = pytestconfig.stash[DECLARED]
    rows, pending = matrix.recorded()
    if pytestconfig.getoption("update"):
        assert len(pytestconfig.stash[MARKED_FILES]["frameworks"]) > 20, "run it as `make matrix`"
        rows = matrix.merged_rows(rows, matrix.reported_rows(matrix.REPORTS.glob("*.xml")), declared)
        pending = matrix.without_run(declared, rows)
        matrix.write(rows, pending)
    assert [training for training in matrix.without_run(declared, rows) if training not in pending] == [], FIX


def test_every_recorded_run_has_a_test_of_today(pytestconfig: pytest.Config) -> None:
    if not len(pytestconfig.stash[MARKED_FILES]["frameworks"]) > 20:
        pytest.skip("only some of the tests are collected")
    declared = pytestconfig.stash[DECLARED]
    rows, pending = matrix.recorded()
    assert [row for row in rows if not any(map(row.meets, declared))] == [], FIX
    assert [training for training in pending if training not in declared] == [], FIX


def test_the_page_has_the_recorded_runs() -> None:
    (text,) = matrix.PLACE.findall(matrix.PAGE.read_text())
    assert text == matrix.text_of(*matrix.recorded()), FIX


@pytest.mark.parametrize(
    "change",
    [{"version": "2.16.0"}, {"network": "namespace"}, {"kind": "TFJob"}, {"training": "FSDP2"}, {"python": "3.13"}],
    ids=str,
)
def test_a_declaration_that_changes_needs_a_new_run(change: dict[str, str]) -> None:
    assert RUN.meets(DDP)
    assert not RUN.meets(DDP._replace(**change))


def test_a_newer_run_replaces_the_older_one_and_a_removed_test_its_rows() -> None:
    debian = DDP._replace(framework="Debian's torch", version="")
    old = RUN._replace(framework="Debian's torch", version="1.13.1")
    new = old._replace(version="2.6.0")
    gone = RUN._replace(framework="caffe")
    assert matrix.merged_rows([RUN, old, gone], [new], [DDP, debian]) == [new, RUN]


def test_runs_are_read_from_the_report_of_pytest(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    value = '["torch", "2.15.0", "3.11", "DDP", "PyTorchJob", "shared"]'.replace('"', "&quot;")
    report.write_text(
        f'<t><testcase><properties><property name="trained" value="{value}"/></properties></testcase></t>'
    )
    assert matrix.reported_rows([report]) == [RUN]


def test_the_table_has_a_line_for_each_version_and_kind() -> None:
    rows = [RUN, RUN._replace(training="FSDP2"), RUN._replace(network="namespace"), RUN._replace(kind="ElasticJob")]
    assert matrix.text_of(rows, [DDP._replace(training="elastic")]).splitlines()[2:] == [
        "| torch 2.15.0 | 3.11 | PyTorchJob | DDP | DDP, FSDP2 |",
        "| torch 2.15.0 | 3.11 | ElasticJob |  | DDP |",
        "",
        "Not recorded yet, though a test trains with it: torch 2.15.0 elastic as PyTorchJob in shared.",
    ]
