"""What an exit code means."""

from __future__ import annotations

import signal

CODES = {
    1: "an error of the program's own",
    2: "an error of the program's own, often wrong arguments",
    126: "the command cannot be executed: it is no program, or may not be run",
    127: "the command was not found: check command and args, and what the image holds",
    128: "the container could not be started",
}
SIGNALS = {
    signal.SIGABRT: "it gave up by itself, often in native code",
    signal.SIGBUS: "often too little shared memory: mount an emptyDir with medium Memory at /dev/shm",
    signal.SIGFPE: "a division by zero in native code",
    signal.SIGILL: "an instruction that this processor does not have: another build of the program",
    signal.SIGKILL: "killed from outside, often for want of memory: see its memory limit",
    signal.SIGSEGV: "it crashed in native code",
    signal.SIGTERM: "it was told to end",
    signal.SIGINT: "it was interrupted",
}


def meaning(code: int, reason: str) -> str:
    """A few words about an exit code; "" when there is nothing to add."""
    if reason == "OOMKilled":
        return "it ran out of memory: raise its memory limit, or lower what it uses"
    if code in CODES:
        return CODES[code]
    if code > 128:
        try:
            number = signal.Signals(code - 128)
        except ValueError:
            return ""
        return f"{number.name}: {SIGNALS[number]}" if number in SIGNALS else number.name
    return ""
