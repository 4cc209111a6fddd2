#!/usr/bin/env python3
"""A replica of any kind: it says what it was told in the words of its README, and stays until the story ends it.

The end is a file in its folder for temporary files, which is its own in both networks. It holds the exit code.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

END = Path(tempfile.gettempdir(), "end")


def exit_code() -> str:
    if "TF_CONFIG" in os.environ:
        task = json.loads(os.environ["TF_CONFIG"])["task"]
        return f"REPLICA_TYPE={task['type']},REPLICA_INDEX={task['index']}"
    if "DMLC_ROLE" in os.environ or "mxnet" in os.getcwd():
        return f"INFO:root:start with arguments Namespace({', '.join(sys.argv[1:])})"
    return f"start with arguments {' '.join(sys.argv[1:])}"


print(exit_code(), flush=True)
while not END.exists() or not END.read_text().strip():
    time.sleep(0.05)
sys.exit(int(END.read_text()))
