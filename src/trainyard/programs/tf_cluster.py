"""What the TensorFlow programs here share: who am I in the cluster, and serving until told to stop.

TF_CONFIG is what the operator gives every replica: {"cluster": {"ps": ["host:port", ...], ...}, "task": {"type", "index"}}.
Without it a program is a cluster of one master.
"""

import importlib.util
import json
import os
import signal
import sys
import types

ALONE = {"cluster": {"master": ["127.0.0.1:0"]}, "task": {"type": "master", "index": 0}}
CHIEFS = ("master", "chief")


class Task:
    """This process: its role, its number, and everybody's address."""

    def __init__(self, environ):
        try:
            config = json.loads(environ["TF_CONFIG"]) if environ.get("TF_CONFIG") else ALONE
            self.cluster = {role: list(hosts) for role, hosts in sorted(config["cluster"].items()) if hosts}
            self.role = config["task"]["type"]
            self.index = int(config["task"]["index"])
            self.address = self.cluster[self.role][self.index]
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            sys.exit("TF_CONFIG does not say who I am (%s: %s); the operator sets it" % (type(error).__name__, error))

    @property
    def leads(self):
        return self.role in CHIEFS

    @property
    def everyone(self):
        """(role, index, address) of all tasks, the leaders first."""
        roles = sorted(self.cluster, key=lambda role: (role not in CHIEFS, role))
        return [(role, at, address) for role in roles for at, address in enumerate(self.cluster[role])]

    def say(self, text):
        print("%s %d: %s" % (self.role, self.index, text), flush=True)


def quietly():
    """Variables that TensorFlow reads when it is imported. No banner; and no Keras: that alone takes 1.5 seconds."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")


def server_alone():
    """(Server, ClusterSpec, ConfigProto), without the rest of TensorFlow: one second of a processor, not eight.

    A task that only serves needs none of the Python above the server. `import tensorflow` brings all of it, so an empty
    module takes that name here, with the folder of the real one. A TensorFlow that is laid out otherwise is imported
    whole, by a fresh start of this program.
    """
    whole = "TRAINYARD_WHOLE_TENSORFLOW"
    if os.environ.get(whole):
        import tensorflow.compat.v1 as tf

        return tf.train.Server, tf.train.ClusterSpec, tf.ConfigProto
    try:
        folders = importlib.util.find_spec("tensorflow").submodule_search_locations
        sys.modules["tensorflow"] = types.ModuleType("tensorflow")
        sys.modules["tensorflow"].__path__ = list(folders)
        from tensorflow.core.protobuf.config_pb2 import ConfigProto
        from tensorflow.python.training.server_lib import ClusterSpec, Server
    except (ImportError, AttributeError, TypeError):
        os.environ[whole] = "1"
        os.execv(sys.executable, [sys.executable, *sys.argv])  # noqa: S606 - ourselves, once
    return Server, ClusterSpec, ConfigProto


def serve(task):
    """Serves until SIGTERM. What server.join() promises, in a place where Python hears the signal."""
    server, cluster, config = server_alone()
    running = server(cluster(task.cluster), task.role, task.index, config=config(intra_op_parallelism_threads=1))
    task.say("TensorFlow serves at %s" % task.address)
    while running:
        signal.pause()


def end_on_sigterm(before=None):
    """Also as process 1 of a container, where no signal has a default."""

    def end(number, frame):
        if before:
            before()
        os._exit(128 + number)

    signal.signal(signal.SIGTERM, end)


def leave(code=0):
    """The end, at once: a TensorFlow server cannot be stopped, and taking its modules apart takes seconds."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
