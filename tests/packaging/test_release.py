"""One version everywhere: the sources, the changelog, the chart, the manifests and the pages (docs/releasing.md)."""

from __future__ import annotations

import re

import yaml

from tests.support.repository import ROOT, tracked_files
from trainyard import __version__

PLACES = ("Dockerfile", "README.md", "docs", "charts", "config", "deploy", "examples")
IMAGE = re.compile(r"trainyard(?:[/-]operator[:-]|:)(\d+\.\d+\.\d+)")


def test_the_newest_section_of_the_changelog_is_this_version() -> None:
    headings = re.findall(r"^## \[(.+?)\](.*)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert headings[0] == ("Unreleased", "")
    assert headings[1][0] == __version__
    assert re.fullmatch(r" - \d{4}-\d\d-\d\d", headings[1][1])


def test_the_chart_has_this_version() -> None:
    chart = yaml.safe_load((ROOT / "charts" / "trainyard" / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_every_place_names_the_image_of_this_version() -> None:
    paths = [path for path in tracked_files() if path.relative_to(ROOT).parts[0] in PLACES]
    versions = {
        (str(path.relative_to(ROOT)), version)
        for path in paths
        if path.suffix not in (".png", ".gif")
        for version in IMAGE.findall(path.read_text())
    }
    assert {"Dockerfile", "charts/trainyard/values.yaml", "deploy/2-operator.yaml"} <= {path for path, _ in versions}
    assert sorted((path, version) for path, version in versions if version != __version__) == []


def test_the_page_names_every_target_that_the_workflow_makes() -> None:
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    page = (ROOT / "docs" / "releasing.md").read_text()
    targets = [target for line in re.findall(r"run: make (.+)", workflow) for target in line.split(')" ')[-1].split()]
    assert {"dist", "image"} <= set(targets)
    assert [target for target in targets if f"`make {target}`" not in page] == []
