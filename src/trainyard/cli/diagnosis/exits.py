"""What an exit code means, and what can be done about it."""

from __future__ import annotations

import signal
from typing import NamedTuple


class Cause(NamedTuple):
    """Why something is so, and what helps. Either may be empty: then nothing is known."""

    what: str = ""
    fix: str = ""


class Surroundings(NamedTuple):
    """What is known of the container that ended, beside its output."""

    local: bool = False  # it ran as processes of a Trainyard node, not in a container of an image
    interpreter: str = ""  # the Python that `python` was in it; "" where that is not known
    image: str = ""
    memory_limit: str = ""  # its resources.limits.memory
    holders: tuple[tuple[int, str], ...] = ()  # ports that its output names, and who listens there


CODES = {
    1: "an error of the program's own",
    2: "an error of the program's own, often wrong arguments",
    126: "the command cannot be executed: it is no program, or may not be run",
    127: "the command was not found",
    128: "the container could not be started",
}
FIXES = {
    126: "`chmod +x` the file, or start it with its interpreter, such as command: [sh, FILE]",
    127: "check command and args of the template, and what the image holds",
    128: "mend in the template what the message names",
}
TRACE = "set PYTHONFAULTHANDLER=1 in its env to see where, then check the versions of its native libraries"
SIGNALS = {
    signal.SIGABRT: Cause("it gave up by itself, often in native code", TRACE),
    signal.SIGBUS: Cause(
        "often too little shared memory",
        "mount an emptyDir with medium Memory at /dev/shm, or use fewer loaders",
    ),
    signal.SIGFPE: Cause("a division by zero in native code", TRACE),
    signal.SIGILL: Cause(
        "an instruction that this processor does not have", "use a build of the program for this processor"
    ),
    signal.SIGSEGV: Cause("it crashed in native code", TRACE),
    signal.SIGTERM: Cause("it was told to end", "see who ended it: `trainyard events`"),
    signal.SIGINT: Cause("it was interrupted", "see who ended it: `trainyard events`"),
}


def exit_cause(code: int, reason: str, around: Surroundings = Surroundings()) -> Cause:  # noqa: B008  (a value)
    """What is known from the exit code alone."""
    limit = around.memory_limit
    if reason == "OOMKilled":
        fix = "raise resources.limits.memory of the container, or lower what the program uses"
        if limit:
            return Cause(f"it used more memory than its limit of {limit}", fix)
        return Cause(
            "it ran out of memory; it has no memory limit of its own",
            "lower what the program uses, or run it where there is more memory",
        )
    if code in CODES:
        return Cause(CODES[code], FIXES.get(code, ""))
    if code == 128 + signal.SIGKILL:
        return _killed(around)
    if code > 128:
        try:
            number = signal.Signals(code - 128)
        except ValueError:
            return Cause()
        known = SIGNALS.get(number, Cause())
        return Cause(f"{number.name}: {known.what}" if known.what else number.name, known.fix)
    return Cause()


def _killed(around: Surroundings) -> Cause:
    """SIGKILL, and nobody has said that it was for want of memory."""
    log = "`dmesg | grep -i oom`" if around.local else "`dmesg | grep -i oom` on its node"
    if around.memory_limit:
        what = f"killed with SIGKILL from outside, and not by its memory limit of {around.memory_limit}"
    else:
        what = "killed with SIGKILL from outside; it has no memory limit"
    return Cause(what, f"if nobody killed it, the machine may have run out of memory: see the kernel log, {log}")
