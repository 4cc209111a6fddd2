"""The exit codes of all commands, one table."""

from __future__ import annotations

SUCCEEDED = 0  # it is done; every job succeeded
FAILED = 1  # a job failed; or there is no such job, or the cluster said no
BAD = 2  # a manifest or the command line is wrong; nothing was started and nothing was sent
CANNOT = 3  # it cannot run here: an image, disk space, the package index; or there is no cluster that answers
TIMEOUT = 124  # the time of --timeout is over
INTERRUPTED = 130  # Ctrl-C
READER_GONE = 141  # whoever read our output went away
