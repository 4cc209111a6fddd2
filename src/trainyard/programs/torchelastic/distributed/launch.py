"""`python -m torchelastic.distributed.launch`: the command line of torchelastic 0.2 on top of the current torchrun.

torchrun accepts the same options. This module adapts the differences:
- The old defaults: rendezvous through etcd, one trainer per CPU. Three timeouts are shorter, so that a job that
  grows or shrinks continues within seconds: the last call of a rendezvous, the monitoring interval of the trainers,
  the keep-alive of members.
- It waits for etcd, whose name may resolve late and which may start later.
- After SIGTERM the exit code is 143, as before, not 1: a job can distinguish a stop from a failure.
- torch 1.13 on Python 3.11 cannot parse "0" as a redirection; this is patched.
- The address for the other members must resolve: if the host's name does not, its IP address is used.
"""

import os
import socket
import sys
import threading
import time

DEFAULTS = {
    "PET_RDZV_BACKEND": "etcd",
    "PET_NPROC_PER_NODE": "auto",
    "PET_MAX_RESTARTS": "10",  # each member uses one up when another member is killed
    "PET_MONITOR_INTERVAL": "1",
    "PET_RDZV_CONF": "last_call_timeout=5",
}
SILENCE = 5  # seconds without a keep-alive after which a member counts as lost
STOPPING = 10  # seconds between SIGTERM and SIGKILL
PATIENCE = 60  # seconds to wait for the start of etcd


def option_value(argv, option):
    """The last value of an option before the script, "" without one. In both spellings, with = or a space."""
    last = ""
    names = ("--" + option, "--" + option.replace("_", "-"))
    for at, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if name in names:
            last = value if equals else "".join(argv[at + 1 : at + 2])
    return last


def set_defaults(environ):
    """The options of the old launcher, as variables of torchrun that the user has not set."""
    for name, value in DEFAULTS.items():
        environ.setdefault(name, value)


def endpoint(argv, environ):
    """(host, port) of the etcd server to wait for, None if there is none."""
    backend = option_value(argv, "rdzv_backend") or environ.get("PET_RDZV_BACKEND", "")
    text = option_value(argv, "rdzv_endpoint") or environ.get("PET_RDZV_ENDPOINT", "")
    if "--standalone" in argv or not backend.startswith("etcd") or not text:
        return None
    host, _, port = text.rpartition(":") if ":" in text else (text, "", "2379")
    return (host.strip("[]"), int(port)) if port.isdigit() else None


def wait_for_etcd(place, patience=PATIENCE, pause=0.5):
    """Return when the server accepts connections, or after a timeout, when torch reports the error."""
    deadline, reported = time.time() + patience, False
    while time.time() < deadline:
        try:
            socket.create_connection(place, 5).close()
        except OSError as error:
            if not reported:
                print("waiting for the rendezvous at %s:%d: %s" % (place[0], place[1], error), flush=True)
                reported = True
            time.sleep(pause)
        else:
            return


def own_address():
    """A name or IP address of this host that resolves."""
    name = socket.getfqdn(socket.gethostname())
    try:
        socket.getaddrinfo(name, None)
        return name
    except OSError:
        pass
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: returns the address that would be used
            return probe.getsockname()[0]
        except OSError:
            return "127.0.0.1"


def patch_redirects(std):
    """Patch the flag lookup of torch 1.13: it searches the members, and since Python 3.11 the empty flag is not
    among them."""
    if std.from_str("0") is None:
        original = std.from_str
        std.from_str = classmethod(lambda cls, text: cls.NONE if text == "0" else original(text))


def shorten_keep_alive():
    """Shorten the time after which a new rendezvous treats a silent member of the last one as lost; torch uses 10
    seconds."""
    try:
        from torch.distributed.elastic.rendezvous import etcd_rendezvous
    except ImportError:
        return
    if hasattr(etcd_rendezvous, "CONST_WORKER_KEEPALIVE_TTL"):
        etcd_rendezvous.CONST_WORKER_KEEPALIVE_TTL = SILENCE


def exit_after_timeout(multiprocessing):
    """Exit after a timeout: torch reports a stop to its own threads by an exception, which the etcd client may treat
    as an error of the server and retry."""
    original = getattr(multiprocessing, "_terminate_process_handler", None)

    def stopped(number, frame):
        timer = threading.Timer(STOPPING, os._exit, (128 + number,))
        timer.daemon = True
        timer.start()
        original(number, frame)

    if original:
        multiprocessing._terminate_process_handler = stopped


def main():
    set_defaults(os.environ)
    place = endpoint(sys.argv[1:], os.environ)
    if place:
        try:
            import etcd  # noqa: F401
        except ImportError:
            sys.exit("the rendezvous needs Python's etcd client: apt-get install -y python3-etcd, or pip install python-etcd")
        wait_for_etcd(place)
    shorten_keep_alive()
    from torch.distributed import run
    from torch.distributed.elastic.agent.server import api
    from torch.distributed.elastic.multiprocessing import api as multiprocessing_api
    from torch.distributed.elastic.multiprocessing.api import SignalException, Std
    from spelling import options_of, spelled

    patch_redirects(Std)
    exit_after_timeout(multiprocessing_api)
    if hasattr(api, "_get_fq_hostname"):
        api._get_fq_hostname = own_address
    try:
        run.main(spelled(sys.argv[1:], options_of(run.get_args_parser())))
    except SignalException as stopped:
        print("stopped by signal %d" % stopped.sigval, flush=True)
        sys.exit(128 + stopped.sigval)


if __name__ == "__main__":
    main()
