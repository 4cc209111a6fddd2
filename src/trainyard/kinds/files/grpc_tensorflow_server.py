#!/usr/bin/env python
"""A standard TensorFlow server: the program of parameter servers without a container in their template.

It runs inside the job's own TensorFlow image: Python 2.7 with TensorFlow 1.3 as well as Python 3 with TensorFlow 2.
So it is one file, uses only features of all of these, and checks its arguments before it imports TensorFlow.

The cluster is written "job|host:port;host:port,job|host:port"; the position of an address is its task number.
A wrong argument is reported in one line, with exit code 1. SIGTERM ends the server at once, also as process 1.
"""

from __future__ import print_function

import argparse
import os
import signal
import sys


def parse_cluster(text):
    """{job name: [address of task 0, address of task 1, ...]}."""
    if not text:
        raise ValueError("Empty cluster_spec string")
    cluster = {}
    for part in text.split(","):
        if part.count("|") != 1:
            raise ValueError("Not exactly one '|' in cluster_spec part %r; write job|host:port;host:port" % part)
        name, tasks = part.split("|")
        name = name.strip()
        if not name:
            raise ValueError("Empty job name in cluster_spec part %r" % part)
        addresses = [address.strip() for address in tasks.split(";")]
        for position, address in enumerate(addresses):
            if not address:
                raise ValueError("Empty task string at position %d of job %r" % (position, name))
        cluster[name] = addresses
    return cluster


def parse_arguments(words):
    """The flags, and the cluster in them. Unknown flags are ignored."""
    parser = argparse.ArgumentParser(description="A standard TensorFlow gRPC server.")
    parser.add_argument("--cluster_spec", default="", help="job|host:port;host:port,job|host:port")
    parser.add_argument("--job_name", default="", help="this server's job")
    parser.add_argument("--task_id", type=int, default=0, help="this server's position in its job")
    parser.add_argument("--gpu_memory_fraction", type=float, default=1.0, help="how much of a GPU to take")
    parser.add_argument(
        "--verbose", nargs="?", const=True, default=False, type=lambda word: word.lower() in ("true", "t", "1", "yes")
    )
    flags, _ = parser.parse_known_args(words)
    cluster = parse_cluster(flags.cluster_spec)
    if not flags.job_name:
        raise ValueError("Empty job_name")
    if flags.task_id < 0:
        raise ValueError("Invalid task_id: %d" % flags.task_id)
    return flags, cluster


def tensorflow_2():
    """The folder of TensorFlow 2, None if the image has another TensorFlow. Imports nothing."""
    if sys.version_info < (3, 8):
        return None
    import importlib.util

    spec = importlib.util.find_spec("tensorflow")
    folder = spec.submodule_search_locations[0] if spec and spec.submodule_search_locations else ""
    return folder if os.path.isdir(os.path.join(folder, "_api", "v2")) else None


def server_library():
    """The classes that a server needs: (Server, ClusterSpec, ConfigProto, GPUOptions).

    Importing all of TensorFlow 2 takes eight CPU seconds, for Python code that a server never calls; its server
    alone takes one. So an empty module with the path of the real package takes its place in sys.modules. If
    TensorFlow has another layout, this program starts again and imports all of it."""
    variable = "TRAINYARD_WHOLE_TENSORFLOW"
    folder = None if os.environ.get(variable) else tensorflow_2()
    if folder:
        try:
            sys.modules["tensorflow"] = type(sys)("tensorflow")
            sys.modules["tensorflow"].__path__ = [folder]
            from tensorflow.core.protobuf.config_pb2 import ConfigProto, GPUOptions
            from tensorflow.python.training.server_lib import ClusterSpec, Server

            return Server, ClusterSpec, ConfigProto, GPUOptions
        except (ImportError, AttributeError):
            os.environ[variable] = "1"
            os.execv(sys.executable, [sys.executable] + sys.argv)
    try:
        import tensorflow.compat.v1 as tf  # TensorFlow 2, and 1 from 1.13
    except ImportError:
        import tensorflow as tf
    return tf.train.Server, tf.train.ClusterSpec, tf.ConfigProto, tf.GPUOptions


def start(flags, cluster):
    """The running server, which serves in its own threads."""
    if not flags.verbose:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # of no use to a server that only stores variables
    server, spec, config, gpus = server_library()
    wanted = config(gpu_options=gpus(per_process_gpu_memory_fraction=flags.gpu_memory_fraction))
    return server(spec(cluster), job_name=flags.job_name, task_index=flags.task_id, config=wanted)


def main(words):
    try:
        flags, cluster = parse_arguments(words)
    except ValueError as error:
        print("ValueError: %s" % error, file=sys.stderr)
        return 1
    # During server.join() Python handles no signals, and process 1 of a container has no default action.
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(128 + number))
    if flags.verbose:
        print("cluster %s" % sorted(cluster.items()))
    server = start(flags, cluster)
    print("TensorFlow server for %s %d: %s" % (flags.job_name, flags.task_id, server.target))
    sys.stdout.flush()
    while True:
        signal.pause()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
