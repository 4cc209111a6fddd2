"""Python imports this module at its start where PYTHONPATH has this folder: the loop of a daemon is measured."""

import os
import sys
from pathlib import Path

if "trainyard.daemon" in sys.orig_argv and (folder := os.environ.get("TRAINYARD_TEST_LOOP_STALLS")):
    sys.path.append(str(Path(__file__).parents[3]))
    from tests.support.loop_stalls import watch_daemon

    watch_daemon(Path(folder))
