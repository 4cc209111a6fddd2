"""Notes about a program whose processes would not train together, from its source alone.

A program that never joins its processes ends with success in each of them: N separate trainings look like one.
"""

from __future__ import annotations

import re
from pathlib import Path

from trainyard.cli.scripts.frameworks import display_path, local_sources
from trainyard.core.scripts import ScriptFramework


def lone_process_notes(script: Path, root: Path, framework: ScriptFramework, processes: int) -> list[str]:
    """What the script and the modules beside it (in `root`) do or leave out, so that each of several processes trains
    alone. A library that is installed elsewhere may join them: its source is not read."""
    if processes == 1 or framework.joins is None:
        return []
    texts = {path: path.read_text(errors="replace") for path in local_sources(script, root)}
    notes = [
        f"{display_path(path, root)}:{text.count(chr(10), 0, match.start()) + 1} {mistake.text}"
        for mistake in framework.mistakes
        for path, text in texts.items()
        if (match := re.search(mistake.pattern, text))
    ]
    if any(re.search(framework.joins.pattern, text) for text in texts.values()):
        return notes
    fix = f"call what joins them ({framework.joins.text})"
    return [f"{script.name}: each of the {processes} processes trains alone, unless a library joins them: {fix}"]
