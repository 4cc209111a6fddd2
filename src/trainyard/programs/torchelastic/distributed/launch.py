"""`python -m torchelastic.distributed.launch`: the command line of torchelastic 0.2, over today's torchrun.

torchrun takes the same options. What differs is put right here:
- The old defaults: rendezvous through etcd, as many trainers as processors. Three times are shorter, so that a job that
  grows or shrinks goes on within seconds: the last call of a rendezvous, the look at the trainers, the wait for the lost.
- etcd is waited for: its name may resolve late, and it may start after us.
- SIGTERM ends with 143, as of old, not with 1: a job may tell a stop from a failure.
- torch 1.13 on Python 3.11 cannot read "0" as a redirection; that is repaired.
- The address that others should meet us at must resolve; where the host's name does not, our address is used.
"""

import os
import socket
import sys
import threading
import time

DEFAULTS = {
    "PET_RDZV_BACKEND": "etcd",
    "PET_NPROC_PER_NODE": "auto",
    "PET_MAX_RESTARTS": "10",  # a member that is killed costs each of the others one
    "PET_MONITOR_INTERVAL": "1",
    "PET_RDZV_CONF": "last_call_timeout=5",
}
SILENCE = 5  # seconds without a sign of life after which a member counts as lost
STOPPING = 10  # seconds for everything to end after SIGTERM
PATIENCE = 60  # seconds that etcd may need to start


def given(argv, option):
    """The last value of an option before the script, "" when it is not there. Both spellings, with = or a space."""
    found = ""
    names = ("--" + option, "--" + option.replace("_", "-"))
    for at, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if name in names:
            found = value if equals else "".join(argv[at + 1 : at + 2])
    return found


def settle_defaults(environ):
    """The image redirects and copies what trainers print, because torchrun 1.13 cannot start otherwise. We can, and a
    trainer that is stopped loses the lines that were not copied yet: so here they print for themselves."""
    for name in ("PET_REDIRECTS", "PET_TEE"):
        if environ.get(name) == "1":
            environ[name] = "0"
    for name, value in DEFAULTS.items():
        environ.setdefault(name, value)


def endpoint(argv, environ):
    """(host, port) of the etcd to wait for, None when this start needs none."""
    backend = given(argv, "rdzv_backend") or environ.get("PET_RDZV_BACKEND", "")
    text = given(argv, "rdzv_endpoint") or environ.get("PET_RDZV_ENDPOINT", "")
    if "--standalone" in argv or not backend.startswith("etcd") or not text:
        return None
    host, _, port = text.rpartition(":") if ":" in text else (text, "", "2379")
    return (host.strip("[]"), int(port)) if port.isdigit() else None


def await_etcd(place, patience=PATIENCE, pause=0.5):
    """Returns when something listens there; also when nobody does for too long: torch then says so."""
    deadline, told = time.time() + patience, False
    while time.time() < deadline:
        try:
            socket.create_connection(place, 5).close()
        except OSError as error:
            if not told:
                print("waiting for the rendezvous at %s:%d: %s" % (place[0], place[1], error), flush=True)
                told = True
            time.sleep(pause)
        else:
            return


def own_address():
    """A name or an address of ours that resolves."""
    name = socket.getfqdn(socket.gethostname())
    try:
        socket.getaddrinfo(name, None)
        return name
    except OSError:
        pass
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent: it only tells which address would be used
            return probe.getsockname()[0]
        except OSError:
            return "127.0.0.1"


def repair(std):
    """torch 1.13 looks for the value among the members; since Python 3.11 the empty flag is none of them."""
    if std.from_str("0") is None:
        original = std.from_str
        std.from_str = classmethod(lambda cls, text: cls.NONE if text == "0" else original(text))


def hasten():
    """Each new rendezvous waits until a member of the last one has been silent for this long: torch takes 10 seconds."""
    try:
        from torch.distributed.elastic.rendezvous import etcd_rendezvous
    except ImportError:
        return
    if hasattr(etcd_rendezvous, "CONST_WORKER_KEEPALIVE_TTL"):
        etcd_rendezvous.CONST_WORKER_KEEPALIVE_TTL = SILENCE


def end_at_last(multiprocessing):
    """torch tells its own parts of a stop by an exception, which those that talk to etcd may take for a fault of etcd's
    and try again. Who has not ended by then is ended."""
    original = getattr(multiprocessing, "_terminate_process_handler", None)

    def stopped(number, frame):
        timer = threading.Timer(STOPPING, os._exit, (128 + number,))
        timer.daemon = True
        timer.start()
        original(number, frame)

    if original:
        multiprocessing._terminate_process_handler = stopped


def main():
    settle_defaults(os.environ)
    place = endpoint(sys.argv[1:], os.environ)
    if place:
        try:
            import etcd  # noqa: F401
        except ImportError:
            sys.exit("the rendezvous needs Python's etcd client: apt-get install -y python3-etcd, or pip install python-etcd")
        await_etcd(place)
    hasten()
    from torch.distributed import run
    from torch.distributed.elastic.agent.server import api
    from torch.distributed.elastic.multiprocessing import api as multiprocessing_api
    from torch.distributed.elastic.multiprocessing.api import SignalException, Std
    from spelling import options_of, spelled

    repair(Std)
    end_at_last(multiprocessing_api)
    if hasattr(api, "_get_fq_hostname"):
        api._get_fq_hostname = own_address
    try:
        run.main(spelled(sys.argv[1:], options_of(run.get_args_parser())))
    except SignalException as stopped:
        print("stopped by signal %d" % stopped.sigval, flush=True)
        sys.exit(128 + stopped.sigval)


if __name__ == "__main__":
    main()
