"""Describes the interpreter that runs it: `query.py MODULE...` prints one JSON object. Runs as a script, alone.

Any Python 3 can run it, so it uses no syntax and no library newer than 3.6. It imports none of the modules.
"""

import os
import sys

if sys.path and os.path.realpath(sys.path[0]) == os.path.dirname(os.path.realpath(__file__)):
    del sys.path[0]  # the folder of this script is not part of the interpreter's sys.path

import contextlib
import importlib.util
import json


def exists(module: str) -> bool:
    """Whether a module can be imported; a broken parent package counts as missing."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def versions(modules: "list[str]") -> "dict[str, list[str]]":
    """Module -> the versions of the distributions that contain it. Slow: it reads all distributions."""
    try:
        from importlib import metadata
    except ImportError:
        return {}
    module_versions = {}  # type: dict[str, list[str]]
    distributions = {module: [module.replace("_", "-")] for module in modules}
    if hasattr(metadata, "packages_distributions"):
        distributions = dict(metadata.packages_distributions())
    for module in modules:
        for distribution in distributions.get(module, ()):
            with contextlib.suppress(metadata.PackageNotFoundError):
                module_versions.setdefault(module, []).append(metadata.version(distribution))
    return module_versions


def main() -> None:
    """Print one JSON object about this interpreter and the modules named as arguments. Runs on Python 3.5 and later."""
    present = [module for module in sys.argv[1:] if exists(module)]
    module_versions = versions(present) if present else {}
    answer = {
        "version": "%d.%d.%d" % sys.version_info[:3],  # noqa: UP031 - for Python 3.5, too
        "executable": sys.executable,
        "prefix": sys.prefix,
        "base_prefix": sys.base_prefix,
        "conda": os.path.isdir(os.path.join(sys.prefix, "conda-meta")),
        "modules": {module: module_versions.get(module, []) for module in present},
        "path": [folder for folder in sys.path if os.path.isdir(folder)],
    }
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
