"""MultiWorkerMirroredStrategy: the chief and the workers train in step."""

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
resolver = strategy.cluster_resolver
with strategy.scope():
    weights = tf.Variable(tf.zeros([4, 1]))
truth = tf.constant([[1.0], [-2.0], [3.0], [0.5]])
tf.random.set_seed(1 + (resolver.task_id or 0))


@tf.function
def train():
    def step():
        x = tf.random.normal([32, 4])
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ weights - x @ truth) ** 2)
        gradient = tape.gradient(loss, weights)
        gradient = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, gradient)
        weights.assign_sub(0.1 * gradient)
        return loss

    return strategy.reduce(tf.distribute.ReduceOp.MEAN, strategy.run(step), axis=None)


for number in range(40):
    loss = train()
    if number in (0, 39):
        print("step", number, "loss", float(loss), flush=True)
print(resolver.task_type, resolver.task_id, "of", strategy.num_replicas_in_sync, flush=True)
if resolver.task_type == "chief":
    tf.train.Checkpoint(weights=weights).write("model/weights")
