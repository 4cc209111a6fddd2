"""The exit codes of all commands, one table."""

from __future__ import annotations

SUCCEEDED = 0  # the command is done; every job succeeded
# a job failed, its success is in doubt, or it does not exist; the API server refused the request; or a field was not
# converted
FAILED = 1
INVALID = 2  # a manifest or the command line is invalid; no process was started and no request was sent
UNAVAILABLE = 3  # not possible on this machine (image, disk space, package index), or no cluster answers
TIMEOUT = 124  # --timeout has expired
INTERRUPTED = 130  # SIGINT (Ctrl-C)
READER_GONE = 141  # the reader of stdout or stderr has closed its end of the pipe (EPIPE)
