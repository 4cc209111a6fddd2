#!/bin/sh
exec python3 "${0%/*}/kubexec.py" "$@"
