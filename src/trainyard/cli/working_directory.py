"""The folder in which the programs of a manifest run on this machine: that of the manifest.

It is written as an annotation on jobs and pods that go to a local cluster; the node there reads it (docs/images.md).
An annotation that is there already stays."""

from __future__ import annotations

import os

from trainyard.objects import Json
from trainyard.objects.labels import WORKING_DIRECTORY
from trainyard.objects.manifest import Document

_WITH_POD_TEMPLATE = frozenset({"Job", "Deployment", "StatefulSet"})


def annotate(document: Document, is_job: bool) -> None:
    """Add the annotation to a job of our kinds, to a Pod, or to the pod template of a built-in workload."""
    folder = manifest_folder(document.source)
    kind = document.obj["kind"]
    if folder and (is_job or kind == "Pod"):
        set_annotation(document.obj, folder)
    elif folder and kind in _WITH_POD_TEMPLATE:
        spec = document.obj.get("spec")
        template = spec.get("template") if isinstance(spec, dict) else None
        if isinstance(template, dict):
            set_annotation(template, folder)


def set_annotation(obj: Json, folder: str) -> None:
    """What is malformed is passed on as it is: the API server says so."""
    meta = obj.get("metadata")
    if meta is None:
        meta = obj["metadata"] = {}
    if not isinstance(meta, dict):
        return
    annotations = meta.get("annotations")
    if annotations is None:
        annotations = meta["annotations"] = {}
    if isinstance(annotations, dict):
        annotations.setdefault(WORKING_DIRECTORY, folder)


def manifest_folder(source: str) -> str:
    """The absolute folder of a manifest. Standard input and pipes have none: the current folder then."""
    return os.path.abspath(os.path.dirname(source)) if os.path.isfile(source) else current()


def current() -> str:
    """The current folder, "" when it has been deleted."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""
