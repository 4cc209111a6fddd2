"""Parts that the TensorFlow programs share: the task of this process in the cluster, and serving until SIGTERM.

The operator sets TF_CONFIG for every replica: {"cluster": {"ps": ["host:port", ...], ...}, "task": {"type",
"index"}}. Without it a program is a cluster with a single master.
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
    """The role and index of this process, and the addresses of all tasks."""

    def __init__(self, environ):
        try:
            config = json.loads(environ["TF_CONFIG"]) if environ.get("TF_CONFIG") else ALONE
            self.cluster = {role: list(hosts) for role, hosts in sorted(config["cluster"].items()) if hosts}
            self.role = config["task"]["type"]
            self.index = int(config["task"]["index"])
            self.address = self.cluster[self.role][self.index]
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            sys.exit("TF_CONFIG does not name this task (%s: %s); the operator sets it" % (type(error).__name__, error))

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
    """Set variables that TensorFlow reads at its import: no banner, and no Keras, which alone takes 1.5 seconds."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")


def server_alone():
    """(Server, ClusterSpec, ConfigProto), without the rest of TensorFlow: one CPU second instead of eight.

    A task that only serves needs none of the Python code above the server, but `import tensorflow` imports all of
    it. So an empty module with the path of the real package takes its place in sys.modules. If TensorFlow has
    another layout, this program starts again and imports all of it."""
    variable = "TRAINYARD_WHOLE_TENSORFLOW"
    if os.environ.get(variable):
        import tensorflow.compat.v1 as tf

        return tf.train.Server, tf.train.ClusterSpec, tf.ConfigProto
    try:
        folders = importlib.util.find_spec("tensorflow").submodule_search_locations
        sys.modules["tensorflow"] = types.ModuleType("tensorflow")
        sys.modules["tensorflow"].__path__ = list(folders)
        from tensorflow.core.protobuf.config_pb2 import ConfigProto
        from tensorflow.python.training.server_lib import ClusterSpec, Server
    except (ImportError, AttributeError, TypeError):
        os.environ[variable] = "1"
        os.execv(sys.executable, [sys.executable, *sys.argv])  # noqa: S606 - ourselves, once
    return Server, ClusterSpec, ConfigProto


def serve(task):
    """Serve until SIGTERM. Replaces server.join(), during which Python cannot handle the signal."""
    server, cluster, config = server_alone()
    running = server(cluster(task.cluster), task.role, task.index, config=config(intra_op_parallelism_threads=1))
    task.say("TensorFlow serves at %s" % task.address)
    while running:
        signal.pause()


def end_on_sigterm(before=None):
    """Exit on SIGTERM, also as process 1 of a container, for which signals have no default action."""

    def end(number, frame):
        if before:
            before()
        os._exit(128 + number)

    signal.signal(signal.SIGTERM, end)


def leave(code=0):
    """Exit at once: a TensorFlow server cannot be stopped, and unloading its modules takes seconds."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
