"""The meaning of a container's exit code, and the fix."""

from __future__ import annotations

import signal

from trainyard.core.diagnosis import Cause, ContainerContext
from trainyard.objects.container_restarts import RESTARTING_ALL_CONTAINERS

EXIT_CODE_TEXTS = {
    1: "an error of the program's own",
    2: "an error of the program's own, often wrong arguments",
    126: "the command cannot be executed: it is no program, or may not be run",
    127: "the command was not found",
    128: "the container could not be started",
}
EXIT_CODE_FIXES = {
    126: "`chmod +x` the file, or start it with its interpreter, such as command: [sh, FILE]",
    127: "check command and args of the template, and what the image holds",
    128: "mend in the template what the message names",
}
NATIVE_CRASH_FIX = "set PYTHONFAULTHANDLER=1 in its env to see where, then check the versions of its native libraries"
SIGNAL_CAUSES = {
    signal.SIGABRT: Cause("it gave up by itself, often in native code", NATIVE_CRASH_FIX),
    signal.SIGBUS: Cause(
        "often too little shared memory",
        "mount an emptyDir with medium Memory at /dev/shm, or use fewer loaders",
    ),
    signal.SIGFPE: Cause("a division by zero in native code", NATIVE_CRASH_FIX),
    signal.SIGILL: Cause(
        "an instruction that this processor does not have", "use a build of the program for this processor"
    ),
    signal.SIGSEGV: Cause("it crashed in native code", NATIVE_CRASH_FIX),
    signal.SIGTERM: Cause("it was told to end", "see who ended it: `trainyard events`"),
    signal.SIGINT: Cause("it was interrupted", "see who ended it: `trainyard events`"),
}


def exit_cause(code: int, reason: str, surroundings: ContainerContext = ContainerContext()) -> Cause:  # noqa: B008  (a value)
    """The cause according to the exit code and the reason of the terminated state.

    code: as in a container status; 128 + N means signal N. Returns an empty Cause for an unknown code."""
    if cause := _reason_cause(reason, surroundings):
        return cause
    if code in EXIT_CODE_TEXTS:
        return Cause(EXIT_CODE_TEXTS[code], EXIT_CODE_FIXES.get(code, ""))
    if code == 128 + signal.SIGKILL:
        return _sigkill_cause(surroundings)
    if code > 128:
        try:
            posix_signal = signal.Signals(code - 128)
        except ValueError:
            return Cause()
        cause = SIGNAL_CAUSES.get(posix_signal, Cause())
        return Cause(f"{posix_signal.name}: {cause.explanation}" if cause.explanation else posix_signal.name, cause.fix)
    return Cause()


def _reason_cause(reason: str, surroundings: ContainerContext) -> Cause | None:
    """The cause where the reason tells more than the exit code; None elsewhere."""
    if reason == "ContainerStatusUnknown":
        return _lost_cause(surroundings)
    if reason == RESTARTING_ALL_CONTAINERS:
        return Cause(
            "a rule of restartPolicyRules restarted all containers of its pod, and its own exit code is not known",
            "see which container has the rule, and what it prints before it exits",
        )
    if reason != "OOMKilled":
        return None
    if surroundings.memory_limit:
        return Cause(
            f"it used more memory than its limit of {surroundings.memory_limit}",
            "raise resources.limits.memory of the container, or lower what the program uses",
        )
    return Cause(
        "it ran out of memory; it has no memory limit of its own",
        "lower what the program uses, or run it where there is more memory",
    )


def _lost_cause(surroundings: ContainerContext) -> Cause:
    """The cause of an exit that no node has observed. The exit code, 137, is not the program's."""
    repeat = (
        "make the job again" if surroundings.job_ended else "nothing needs to be mended: its replica is started again"
    )
    if surroundings.on_process_node:
        return Cause("the process of its node that ran it ended, and the program with it; it did not fail", repeat)
    return Cause("its node lost the container, as after a restart; how the program ended is not known", repeat)


def _sigkill_cause(surroundings: ContainerContext) -> Cause:
    """The cause of an exit by SIGKILL whose reason is not OOMKilled."""
    kernel_log = "`dmesg | grep -i oom`" if surroundings.on_process_node else "`dmesg | grep -i oom` on its node"
    if surroundings.memory_limit:
        explanation = f"killed with SIGKILL, and not by its memory limit of {surroundings.memory_limit}"
    else:
        explanation = "killed with SIGKILL; it has no memory limit"
    return Cause(
        explanation, f"if nobody killed it, the machine may have run out of memory: see the kernel log, {kernel_log}"
    )
