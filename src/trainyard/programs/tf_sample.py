"""TensorFlow's smoke test: does every task of the cluster respond, with the right result?

WORKER and PS serve until they are stopped. The MASTER waits until all tasks run, however late they start, places a
small matrix product on each of them, and prints the host name that the task read and the checksum that it computed.
It exits with 0 if all are right, else with 1. The matrices and the file name are fed, so that TensorFlow cannot fold
the graph into constants before it is sent to the tasks.
"""

import argparse
import os
import sys
import time

import tf_cluster

SIZE = 64
HOST_NAME = "/proc/sys/kernel/hostname"  # exists on every Linux, and differs between pods
PATIENCE = 1.0  # seconds between two attempts to reach a lost task


def build(tf, task):
    """(checksum, host name) for each task, placed on it."""
    left, right = tf.placeholder(tf.float32, [SIZE, SIZE]), tf.placeholder(tf.float32, [SIZE, SIZE])
    file = tf.placeholder(tf.string, [])
    answers = []
    for role, index, _ in task.everyone:
        with tf.device("/job:%s/task:%d/device:CPU:0" % (role, index)):
            answers.append((tf.reduce_sum(tf.matmul(left, right)), tf.io.read_file(file)))
    return left, right, file, answers


def ask(tf, server, fetches, feed):
    """The results, and the devices that computed them. Waits for tasks that have not started or restart."""
    while True:
        try:
            with tf.Session(server.target) as session:
                return session.run(fetches, feed), session.list_devices()
        except (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError) as error:
            print("waiting: %s" % str(error).splitlines()[0][:200], flush=True)
            time.sleep(PATIENCE)


def report(task, answers, expected):
    """Print one line per task. True if all checksums are right."""
    names = [name.decode().strip() for _, name in answers]
    shared = len(names) > 1 and len(set(names)) == 1
    right = True
    for (role, index, address), (checksum, _), name in zip(task.everyone, answers, names):
        fits = abs(float(checksum) - expected) <= 1e-3 * abs(expected)
        right = right and fits
        # Tasks on one machine have the same host name but different addresses.
        host = "%s at %s" % (name, address) if shared else name
        print("%s %d on %s: checksum %.4f %s" % (role, index, host, checksum, "ok" if fits else "WRONG"), flush=True)
    return right


def write_summary(tf, folder, checksum):
    """Write a summary for TensorBoard. A path that TensorFlow cannot write (gs:// without its plug-in) does not fail
    the job."""
    try:
        with tf.summary.FileWriter(folder, tf.get_default_graph()) as writer:
            writer.add_summary(tf.Summary(value=[tf.Summary.Value(tag="checksum", simple_value=checksum)]), 0)
        print("summaries are in %s" % folder, flush=True)
    except (tf.errors.OpError, OSError) as error:
        print("no summaries: %s" % str(error).splitlines()[0], flush=True)


def lead(task, flags):
    """The MASTER's part. Exits with one sentence after a wrong result."""
    import numpy as np
    import tensorflow.compat.v1 as tf  # imported here: it is slow, and a task that serves needs little of it

    tf.disable_eager_execution()
    threads = tf.ConfigProto(intra_op_parallelism_threads=1)
    server = tf.train.Server(tf.train.ClusterSpec(task.cluster), task.role, task.index, config=threads)
    task.say("TensorFlow %s serves at %s" % (tf.__version__, task.address))

    random = np.random.RandomState(7)
    matrices = [random.rand(SIZE, SIZE).astype(np.float32) for _ in range(2)]
    left, right, file, fetches = build(tf, task)
    task.say("waiting for %d tasks: %s" % (len(task.everyone), " ".join("%s-%d" % member[:2] for member in task.everyone)))
    answers, devices = ask(tf, server, fetches, {left: matrices[0], right: matrices[1], file: HOST_NAME})
    expected = float((matrices[0].astype(np.float64) @ matrices[1].astype(np.float64)).sum())
    if not report(task, answers, expected):
        sys.exit("a task computed another checksum than %.4f" % expected)
    # A server chooses a random incarnation number at its start: so the numbers count the servers.
    servers = len({device.incarnation for device in devices if device.device_type == "CPU"})
    if servers != len(task.everyone):
        sys.exit("%d tasks answered, but only %d servers are behind them" % (len(task.everyone), servers))
    if flags.log_dir:
        write_summary(tf, flags.log_dir, float(answers[0][0]))
    task.say("all %d tasks answered from %d servers, every checksum is %.4f" % (len(answers), servers, expected))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log_dir", default="", help="where to write summaries for TensorBoard")
    flags, _ = parser.parse_known_args()
    tf_cluster.quietly()
    tf_cluster.end_on_sigterm()
    task = tf_cluster.Task(os.environ)
    if not task.leads:
        tf_cluster.serve(task)
    lead(task, flags)
    tf_cluster.leave()


if __name__ == "__main__":
    main()
