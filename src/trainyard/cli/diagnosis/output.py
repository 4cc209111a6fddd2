"""What the last lines of a program's output speak of. A table: what is seen, what it means, what helps.

Rules:
- Where a Python exception ended the program, that exception is the cause: what stood before it was survived.
- A program that a signal ended did not end because of what it had printed.
- What a fix needs to know (the interpreter, a memory limit, who holds a port) is in `Surroundings`, never assumed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from trainyard.cli.diagnosis.exits import Cause, Surroundings, exit_cause
from trainyard.cli.diagnosis.tracebacks import Raised, is_launcher, last_exception, without_frames

LAST = 8  # lines that may hold the cause, where no exception does

PACKAGES = {
    "cv2": "opencv-python",
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "skimage": "scikit-image",
    "yaml": "pyyaml",
    "bs4": "beautifulsoup4",
    "dateutil": "python-dateutil",
    "attr": "attrs",
}
"""What pip calls a module, where that is not its name."""

Fix = str | Callable[[str, Surroundings], str]


class Sign(NamedTuple):
    """`{name}` stands for a matched word in both texts."""

    pattern: re.Pattern[str]
    what: str
    fix: Fix


def _sign(pattern: str, what: str, fix: Fix) -> Sign:
    return Sign(re.compile(pattern, re.IGNORECASE), what, fix)


def _module(name: str, around: Surroundings) -> str:
    top, _, inner = name.partition(".")
    if inner:  # Python names the whole path only when it has found the first part
        show = f"`{around.interpreter or 'python'} -m pip show {PACKAGES.get(top, top)}`"
        return f"{top} is there, but this version of it has no {name}: see {show}"
    own = f"if {top} is code of your own, name its folder in PYTHONPATH"
    if around.local and "/environments/" in around.interpreter:
        return (
            f"add {PACKAGES.get(top, top)} to the requirements of the image's entry in your catalogue (--images); {own}"
        )
    if around.local:
        python = around.interpreter or "python"
        return f"`{python} -m pip install {PACKAGES.get(top, top)}`, or run it with a Python that has it; {own}"
    return f"install {PACKAGES.get(top, top)} into the image{f' {around.image}' if around.image else ''}; {own}"


def _program(name: str, around: Surroundings) -> str:
    where = "install it on this machine" if around.local else "install it into the image"
    return f"mend command and args of the template, or {where}"


def _memory(name: str, around: Surroundings) -> str:
    if around.memory_limit:
        return f"raise resources.limits.memory (now {around.memory_limit}), or lower what the program uses"
    return "it has no memory limit: lower what the program uses, or run it where there is more memory"


def _rights(name: str, around: Surroundings) -> str:
    who = (
        "this pod runs as the user who started trainyard"
        if around.local
        else "see runAsUser and fsGroup of the template"
    )
    return f"let its user read or write {name or 'that file'} (`ls -l`), or use another place; {who}"


def _port(name: str, around: Surroundings) -> str:
    end = " and ".join(f"end {holder}, which listens on port {port}" for port, holder in around.holders)
    # A pod that holds a port of this machine runs in the network shared: in the other one it would have its own.
    own = ", or use --network namespace, where each pod has all ports"
    own = own if any(holder.startswith("pod ") for _, holder in around.holders) else ""
    return (
        f"{end}, or give this program another port{own}"
        if end
        else "give it another port, or end the program that has this one"
    )


SIGNS = (
    _sign(
        r"EtcdConnectionFailed|Could not get the list of servers, maybe"
        r"|etcd.*(?:connection (?:failed|refused)|unreachable|no more machines)",
        "it cannot reach the etcd of its rendezvous",
        "start etcd, and check that the rendezvous endpoint of the spec names it with its port",
    ),
    _sign(
        r"RendezvousTimeout|rendezvous.*timed? ?out",
        "its rendezvous did not fill in time",
        "see that at least the minimum of replicas runs, and that the rendezvous endpoint of the spec answers",
    ),
    _sign(
        r"RendezvousClosed|rendezvous.*closed",
        "its rendezvous is closed, by a job of this name that has ended",
        "use another name, or suspend and resume the job: that opens a new one",
    ),
    _sign(
        r"RendezvousConnectionError|rendezvous.*(?:connection|connect to)",
        "it cannot reach its rendezvous",
        "check that the rendezvous endpoint of the spec names a Service or address that answers",
    ),
    _sign(
        r"(?:Could not resolve host:? |no such host:? |host=|unable to resolve (?:host )?)['\"]?([\w.-]+)",
        "the host name {name} cannot be resolved",
        "check the name: a Service must exist in the same namespace, or be written NAME.NAMESPACE",
    ),
    _sign(
        r"name or service not known|temporary failure in name resolution|gaierror|nodename nor servname"
        r"|could not resolve host|no such host|unable to resolve",
        "a host name cannot be resolved",
        "check the name: a Service must exist in the same namespace, or be written NAME.NAMESPACE",
    ),
    _sign(
        r"connection refused|ECONNREFUSED|failed to connect to all addresses",
        "somebody it needs does not answer (connection refused)",
        "see that the other replica, or the service it connects to, runs and listens on that port",
    ),
    _sign(
        r"(?:ModuleNotFoundError|ImportError|python[\d.]*): No module named '?([\w.]+)",
        "its Python has no module {name}",
        _module,
    ),
    _sign(
        r"can't open file '?([^':]+)'?: \[Errno 2\]|FileNotFoundError: \[Errno 2\] [^:]*: '([^']+)'",
        "the file {name} is not there",
        "check command, args and workingDir, and that the image or a volume holds the file",
    ),
    _sign(
        r'exec: "([^"]+)": (?:executable file not found|(?:stat [^:]*: )?no such file or directory)'
        r"|(?:\bsh|bash|env|dash)\b[^\n]*?[:\s]['‘]?([^\s:'‘’]+)['’]?: (?:command )?not found"
        r"|\benv: ['‘]?([^\s:'‘’]+)['’]?: No such file",
        "there is no program {name} on its PATH",
        _program,
    ),
    _sign(
        r"([^\s:'‘]+)['’]?: (?:not found|No such file or directory)$",
        "the file {name} is not there",
        "check command, args and workingDir, and that the image or a volume holds the file",
    ),
    _sign(
        r'exec: "([^"]+)": exec format error|cannot execute binary file|Exec format error',
        "{name} is no program for this machine (exec format error)",
        "a script needs a first line such as #!/bin/sh, a binary must be built for this processor",
    ),
    _sign(
        r'exec: "([^"]+)": permission denied|(?:sh|bash): (?:line )?\d*:? ?([^\s:]+): Permission denied',
        "{name} may not be executed",
        "`chmod +x {name}`, or start it with its interpreter, such as command: [sh, {name}]",
    ),
    _sign(
        r"CUDA out of memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation",
        "its GPU has too little memory",
        "lower the batch size, or give it a larger GPU",
    ),
    _sign(
        r"no CUDA-capable device|CUDA driver version is insufficient|Found no NVIDIA driver",
        "there is no GPU it can use",
        "ask for one (resources.limits: nvidia.com/gpu) where the cluster has them, or run it on CPUs",
    ),
    _sign(r"MemoryError\b|std::bad_alloc|Cannot allocate memory", "it ran out of memory", _memory),
    _sign(
        r"(?:No space left on device|Errno 28\b)[^:\n]*(?:: '([^']+)')?",
        "a disk is full",
        "free some space (`df -h`), or write to a larger volume",
    ),
    _sign(
        r"MPI.*Permission denied|Permission denied \(publickey|\bORTE\b|mpi(?:run|exec)\b.*(?:unable|failed)",
        "MPI could not start its processes on the workers",
        "see that every worker runs, and that the job's Role grants pods/exec",
    ),
    _sign(
        r"(?:Permission denied|Errno 13\b)[^:\n]*(?:: '([^']+)')?",
        "it may not use {name} (permission denied)",
        _rights,
    ),
    _sign(r"Address already in use|Errno 98\b|EADDRINUSE", "its port is taken", _port),
)


def sign_of(lines: Iterable[str], around: Surroundings = Surroundings()) -> Cause | None:  # noqa: B008  (a value)
    """What the last telling line means, and what helps."""
    for line in reversed(tuple(lines)):
        for sign in SIGNS:
            if match := sign.pattern.search(line):
                name = next((group for group in match.groups() if group), "")
                return _told(sign, name, around)
    return None


def _told(sign: Sign, name: str, around: Surroundings) -> Cause:
    fix = sign.fix.replace("{name}", name or "FILE") if isinstance(sign.fix, str) else sign.fix(name, around)
    what = sign.what.replace("{name}", name or "that file")
    if sign.pattern.pattern.startswith("Address already") and around.holders:
        what = f"its port is taken: {'; '.join(f'{holder} listens on {port}' for port, holder in around.holders)}"
    if name and around.interpreter and "its Python has no" in what:
        what = f"its Python, {around.interpreter}, has no module {name}"
    return Cause(what, fix)


def cause_of(lines: Sequence[str], code: int, reason: str, around: Surroundings) -> Cause:
    """Why a program ended so, as far as its last lines and its exit code tell."""
    means = exit_cause(code, reason, around)
    if code > 128 or reason == "OOMKilled":
        return means
    raised = last_exception(lines)
    if raised is not None and not is_launcher(raised):
        return _of_exception(raised, around)
    own_words = without_frames(lines)
    cause = sign_of(own_words if raised is not None else own_words[-LAST:], around)
    return cause or (means if raised is None else _of_exception(raised, around))


def _of_exception(raised: Raised, around: Surroundings) -> Cause:
    cause = sign_of([f"{raised.kind}: {raised.message}"], around)
    at = f" at {raised.place}" if raised.place else ""
    fix = f"mend {raised.place}" if raised.place else "mend what its last lines say"
    if cause is None:
        return Cause(f"{raised.text}{at}", fix)
    if (host := _host(raised)) and "host name" in cause.what:
        cause = cause._replace(what=f"the host name {host} cannot be resolved")
    return Cause(f"{cause.what} ({raised.kind}{at})", cause.fix)


def _host(raised: Raised) -> str:
    """A host name that stands, quoted and with a port, in the line that failed."""
    match = re.search(r"\(\(?\s*['\"]([A-Za-z][\w.-]*)['\"]\s*,\s*\d+", raised.source)
    return match[1] if match else ""


_PORT = re.compile(r"(?:\bport[ =:]+|:|['\"],\s*)(\d{2,5})\b", re.IGNORECASE)


_TAKEN = re.compile(r"Address already in use|Errno 98\b|EADDRINUSE", re.IGNORECASE)


def port_is_taken(lines: Sequence[str]) -> bool:
    return any(_TAKEN.search(line) for line in lines)


def ports_named(lines: Sequence[str]) -> list[int]:
    """Ports that these lines name."""
    ports = [int(number) for line in lines for number in _PORT.findall(line)]
    return [port for port in dict.fromkeys(ports) if 0 < port < 65536]


def printable_lines(text: bytes) -> tuple[str, ...]:
    """The lines of an output that are not empty, as a terminal may be given them. Of a progress bar its last state."""
    lines = (line.rpartition("\r")[2].rstrip() for line in text.decode("utf-8", "replace").split("\n"))
    return tuple(
        "".join(char if char.isprintable() or char == "\t" else "?" for char in line) for line in lines if line
    )
