"""ParameterServerStrategy: the chief hands out steps, workers do them, the variables are on a parameter server."""

import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver(rpc_layer="grpc")
if resolver.task_type in ("worker", "ps"):
    tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
    ).join()
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    weights = tf.Variable(tf.zeros([4, 1]))
truth = tf.constant([[1.0], [-2.0], [3.0], [0.5]])


@tf.function
def step():
    x = tf.random.normal([32, 4])
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ weights - x @ truth) ** 2)
    weights.assign_sub(0.05 * tape.gradient(loss, weights))
    return loss


losses = [coordinator.schedule(step) for _ in range(80)]
coordinator.join()
values = [float(loss.fetch()) for loss in losses]
print("first", values[0], "last", values[-1], "on", weights.device, flush=True)
raise SystemExit(values[-1] > 0.1)
