"""Parameter-server training: a small network learns to read digits, asynchronously, on all tasks of a TfJob.

Flow: each PS serves a share of the variables. The MASTER and each WORKER have their own copy of the graph and their
own images; each reads the variables, computes gradients for one batch, and adds them to the variables, without
waiting for others. The MASTER is the chief: it creates the variables, saves them, measures the accuracy on held-out
images, and exits with 0 only if that reaches --target_accuracy.

After the death of a process:
- A worker that restarts continues with the current variables. Workers exit with 0 when the training is done.
- A master that restarts finds the variables on the parameter servers and continues with them.
- A PS that restarts is empty. The master detects this and loads its last checkpoint.

The checkpoint is a file of the master, so no shared folder is needed. If both are lost, the training starts from the
beginning.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time

import tf_cluster

HIDDEN, BATCH, PICTURES = 128, 64, 6000


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1500, help="steps of all replicas together")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds to wait after each step")
    parser.add_argument("--learning_rate", type=float, default=0.3)
    parser.add_argument("--target_accuracy", type=float, default=0.9, help="on held-out pictures; below it, exit 1")
    parser.add_argument("--zero_gradients", action="store_true", help="multiply all gradients by 0: nothing is learnt")
    parser.add_argument("--print_every", type=int, default=100, help="steps between two lines of one replica")
    parser.add_argument("--checkpoint_dir", default="", help="the master's; default: a temporary folder of its own")
    parser.add_argument("--log_dir", default="", help="where the master writes summaries for TensorBoard")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_known_args()[0]


# Checked before TensorFlow is imported, which takes seconds.
FLAGS = arguments()
TASK = tf_cluster.Task(os.environ)
if "worker" in TASK.cluster and "ps" not in TASK.cluster:
    sys.exit("workers share their variables through a parameter server: give the job a PS with replicas: 1 or more")
tf_cluster.quietly()
tf_cluster.end_on_sigterm()
if TASK.role == "ps":
    tf_cluster.serve(TASK)

import numpy as np  # noqa: E402
import tensorflow.compat.v1 as tf  # noqa: E402
import drawn_digits  # noqa: E402


class Model:
    """The graph of one replica. Variables are on the parameter servers, everything else is on this task."""

    def __init__(self, task, flags):
        here = "/job:%s/task:%d" % (task.role, task.index)
        size = drawn_digits.HEIGHT * drawn_digits.WIDTH
        with tf.device(tf.train.replica_device_setter(cluster=task.cluster, worker_device=here)):
            self.step = tf.train.get_or_create_global_step()
            self.pictures = tf.placeholder(tf.float32, [None, size])
            self.labels = tf.placeholder(tf.int64, [None])
            hidden = tf.nn.relu(self._layer("hidden", self.pictures, size, HIDDEN, flags.seed))
            scores = self._layer("scores", hidden, HIDDEN, 10, flags.seed + 1)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=self.labels, logits=scores)
            self.loss = tf.reduce_mean(losses)
            self.accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(scores, 1), self.labels), tf.float32))
            optimizer = tf.train.GradientDescentOptimizer(flags.learning_rate)
            gradients = optimizer.compute_gradients(self.loss)
            if flags.zero_gradients:
                gradients = [(gradient * 0.0, variable) for gradient, variable in gradients]
            self.train = optimizer.apply_gradients(gradients, global_step=self.step)
            # Workers that are done: the master prints the last line, and no PS ends while a worker needs it.
            workers = len(task.cluster.get("worker", ()))
            done = tf.get_variable("done", [max(workers, 1)], tf.bool, tf.zeros_initializer(), trainable=False)
            self.done = done.read_value()
            self.finish = tf.scatter_update(done, [task.index], [True])
            self.initialize = tf.global_variables_initializer()
            self.missing = tf.report_uninitialized_variables()
        with tf.device(here + "/device:CPU:0"):  # files of the master, not of the parameter servers
            self.saver = tf.train.Saver(max_to_keep=2)

    @staticmethod
    def _layer(name, inputs, size, count, seed):
        with tf.variable_scope(name):
            start = tf.random_normal_initializer(stddev=(2.0 / size) ** 0.5, seed=seed)
            weights = tf.get_variable("weights", [size, count], tf.float32, start)
            biases = tf.get_variable("biases", [count], tf.float32, tf.zeros_initializer())
        return tf.matmul(inputs, weights) + biases


class InitialisedSession(tf.train.SessionCreator):
    """Creates sessions whose variables are initialised. Called again whenever a parameter server was lost."""

    def __init__(self, task, server, model, folder):
        self.task, self.server, self.model, self.folder = task, server, model, folder

    def create_session(self):
        # Without device filters a session waits for every task, so a lost worker would stop all others.
        filters = ["/job:ps", "/job:%s/task:%d" % (self.task.role, self.task.index)]
        config = tf.ConfigProto(device_filters=filters, allow_soft_placement=True)
        if not self.task.leads:
            manager = tf.train.SessionManager(ready_op=self.model.missing, recovery_wait_secs=1)
            return manager.wait_for_session(self.server.target, config=config, max_wait_secs=float("inf"))
        session = tf.Session(self.server.target, config=config)
        missing = [name.decode() for name in session.run(self.model.missing)]
        saved = tf.train.latest_checkpoint(self.folder)
        if not missing:
            self.task.say("the parameter servers hold step %d; continuing" % session.run(self.model.step))
        elif saved:
            self.model.saver.restore(session, saved)
            self.task.say("lost: %s; restored step %d" % (", ".join(missing), session.run(self.model.step)))
        else:
            session.run(self.model.initialize)
        return session


def train(task, flags, model, session):
    """Run steps until all replicas together have done enough."""
    own = 0 if task.leads else task.index + 1
    pictures, labels = drawn_digits.digits(PICTURES, flags.seed + 100 + own)
    random = np.random.RandomState(flags.seed + own)
    mine, shown = 0, -flags.print_every
    while True:
        some = random.randint(PICTURES, size=BATCH)
        feed = {model.pictures: pictures[some], model.labels: labels[some]}
        _, loss, accuracy, step = session.run([model.train, model.loss, model.accuracy, model.step], feed)
        mine += 1
        if abs(step - shown) >= flags.print_every or step >= flags.steps:
            shown = step
            task.say("step %5d  loss %.4f  accuracy %.3f  (own step %d)" % (step, loss, accuracy, mine))
        if step >= flags.steps:
            return
        if flags.delay:
            time.sleep(flags.delay)


def finish(task, session, model):
    """A worker reports that it is done. The master waits for these reports, with a timeout: a lost worker does not
    fail the job."""
    if not task.leads:
        session.run(model.finish)
        task.say("done")
        return
    workers, deadline = len(task.cluster.get("worker", ())), time.time() + 5

    def done(step_context):  # without the hooks: a summary that is due would need images
        return step_context.session.run(model.done)[:workers].all()

    while time.time() < deadline and not session.run_step_fn(done):
        time.sleep(0.05)


def held_out_accuracy(task, flags, model, session):
    """Accuracy on pictures that no replica has seen."""
    pictures, labels = drawn_digits.digits(2000, flags.seed)
    feed = {model.pictures: pictures, model.labels: labels}
    loss, accuracy, step = session.run([model.loss, model.accuracy, model.step], feed)
    task.say("held-out accuracy %.3f, loss %.4f, after %d steps" % (accuracy, loss, step))
    return float(accuracy)


def hooks(flags, model, folder):
    """The master's additional work: a checkpoint every two seconds, and summaries if requested."""
    wanted = [tf.train.CheckpointSaverHook(folder, save_secs=2, saver=model.saver)]
    if flags.log_dir:
        with tf.device(model.loss.device):
            curves = [tf.summary.scalar("loss", model.loss), tf.summary.scalar("accuracy", model.accuracy)]
            summary = tf.summary.merge(curves)
        wanted.append(tf.train.SummarySaverHook(save_steps=20, output_dir=flags.log_dir, summary_op=summary))
    return wanted


def learn(task, flags, folder):
    """The whole training of one replica. Returns the held-out accuracy, None for a worker."""
    threads = tf.ConfigProto(intra_op_parallelism_threads=1)
    server = tf.train.Server(tf.train.ClusterSpec(task.cluster), task.role, task.index, config=threads)
    task.say("TensorFlow %s serves at %s" % (tf.__version__, task.address))
    model = Model(task, flags)
    beside = hooks(flags, model, folder) if task.leads else []
    with tf.train.MonitoredSession(InitialisedSession(task, server, model, folder), hooks=beside) as session:
        task.say("training begins")
        train(task, flags, model, session)
        finish(task, session, model)
        return held_out_accuracy(task, flags, model, session) if task.leads else None


def main(task, flags):
    tf.logging.set_verbosity(tf.logging.ERROR)
    tf.disable_eager_execution()
    folder = flags.checkpoint_dir
    if task.leads and not folder:
        folder = tempfile.mkdtemp(prefix="tf-train-")
        tf_cluster.end_on_sigterm(lambda: shutil.rmtree(folder, ignore_errors=True))
    try:
        accuracy = learn(task, flags, folder)
    finally:
        if folder and not flags.checkpoint_dir:
            shutil.rmtree(folder, ignore_errors=True)
    if accuracy is not None and accuracy < flags.target_accuracy:
        task.say("FAILED: held-out accuracy %.3f is below the target %.3f" % (accuracy, flags.target_accuracy))
        tf_cluster.leave(1)
    tf_cluster.leave()


if __name__ == "__main__":
    main(TASK, FLAGS)
