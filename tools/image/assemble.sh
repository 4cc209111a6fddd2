#!/bin/sh
# The file set of the operator's image: a virtual environment with the locked dependencies and Trainyard, compiled.
# Usage, at the top of the sources: assemble.sh TARGET [PYTHON]. The Dockerfile and a test run this.
set -eu
target=$1
python=${2:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
pip="-m pip --disable-pip-version-check --no-cache-dir --quiet"
"$python" -m venv "$target"
"$target/bin/python" $pip install --no-deps --require-hashes -r requirements/runtime.lock
"$python" -m venv "$work/build"
"$work/build/bin/python" $pip install --no-deps --require-hashes -r requirements/build.lock
"$work/build/bin/python" $pip wheel --no-deps --no-build-isolation -w "$work/dist" .
"$target/bin/python" $pip install --no-deps --no-index "$work"/dist/*.whl
"$target/bin/python" -m compileall -q "$target/lib"
