"""Writes a software bill of materials (CycloneDX 1.6, JSON) of what requirements/runtime.lock pins.

python -m tools.sbom dist/trainyard.cdx.json

Names, versions and hashes are those of the lock file. Licences and dependencies are those of the installed packages, so
run it with an interpreter that has them (make sbom). A package that is not installed there, because its environment
marker excludes this interpreter, has neither. The same lock file gives the same bytes: no time, no random number.
"""

from __future__ import annotations

import json
import re
import sys
import uuid
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from trainyard import __version__

DISTRIBUTION = "trainyard-jobs"
LOCK = Path(__file__).parents[1] / "requirements" / "runtime.lock"
PINNED = re.compile(r"^(?P<name>[a-z0-9.-]+)==(?P<version>\S+)(?: ; (?P<marker>[^\\\n]*?))? \\$")
HASH = re.compile(r"^    --hash=sha256:([0-9a-f]{64})")


def bill(lock: str) -> dict[str, Any]:
    components: list[dict[str, Any]] = []
    for line in lock.splitlines():
        if pinned := PINNED.match(line):
            components.append(component(pinned["name"], pinned["version"], pinned["marker"]))
        elif hash_ := HASH.match(line):
            components[-1]["externalReferences"][0]["hashes"].append({"alg": "SHA-256", "content": hash_[1]})
        elif line.strip():
            raise ValueError(f"{LOCK.name}: this line is neither a pinned package nor a hash: {line}")
    refs = {package["name"]: package["bom-ref"] for package in components}
    product = component(DISTRIBUTION, __version__, None) | {"type": "application"}
    del product["externalReferences"]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, product['purl'] + lock)}",
        "version": 1,
        "metadata": {"component": product},
        "components": components,
        "dependencies": [
            {
                "ref": package["bom-ref"],
                "dependsOn": sorted(refs[name] for name in needs(package["name"]) if name in refs),
            }
            for package in (product, *components)
        ],
    }


def component(name: str, version: str, marker: str | None) -> dict[str, Any]:
    purl = f"pkg:pypi/{name}@{version}"
    entry: dict[str, Any] = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    if license := license_of(installed(name)):
        entry["licenses"] = [license]
    if marker:
        entry["properties"] = [{"name": "python:environment-marker", "value": marker}]
    # One of these files is installed: which one depends on the interpreter and the platform.
    entry["externalReferences"] = [{"type": "distribution", "url": purl, "hashes": []}]
    return entry


def installed(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def license_of(package: Distribution | None) -> dict[str, Any] | None:
    if package is None:
        return None
    metadata = package.metadata
    if "License-Expression" in metadata:
        return {"expression": metadata["License-Expression"]}
    text = metadata["License"] if "License" in metadata else ""  # noqa: SIM401 - it has no `get`
    classifiers = [line for line in package.metadata.get_all("Classifier", []) if line.startswith("License ::")]
    name = text if text and "\n" not in text else "".join(line.rpartition(" :: ")[2] for line in classifiers[:1])
    return {"license": {"name": name}} if name else None


def needs(name: str) -> set[str]:
    """The packages that an installed package depends on here, without its extras."""
    package = installed(name)
    wanted = [Requirement(line) for line in (package.requires or [])] if package else []
    return {
        canonicalize_name(requirement.name)
        for requirement in wanted
        if not requirement.marker or requirement.marker.evaluate({"extra": ""})
    }


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    document = bill(LOCK.read_text(encoding="utf-8"))
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(f"{path}: {len(document['components'])} packages")
