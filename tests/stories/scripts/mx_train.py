"""A dist_sync store of MXNet: the servers update the weights."""

import mxnet as mx

store = mx.kv.create("dist_sync")
truth = mx.nd.array([1, -2, 3, 0.5])
mx.random.seed(store.rank + 1)
store.init(0, mx.nd.zeros(4))
store.set_optimizer(mx.optimizer.SGD(learning_rate=0.1, rescale_grad=1 / store.num_workers))
weights = mx.nd.zeros(4)
for step in range(60):
    x = mx.nd.random.normal(shape=(32, 4))
    error = mx.nd.dot(x, weights - truth)
    if step in (0, 59):
        print("step", step, "loss", float((error**2).mean().asscalar()), flush=True)
    store.push(0, 2 * mx.nd.dot(x.T, error) / 32)
    store.pull(0, out=weights)
print("worker", store.rank, "of", store.num_workers, "weights", weights.asnumpy().round(2).tolist(), flush=True)
