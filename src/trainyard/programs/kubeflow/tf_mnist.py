"""`mnist_with_summaries.py` of Kubeflow's TensorFlow examples: a small network of Keras learns digits.

The arguments are those of the original. Each worker learns alone, as there. The digits are drawn from a seed instead
of downloaded; with --fake_data they are noise.
"""

import argparse
import os

import numpy as np
import tensorflow as tf

import drawn_digits

TRAINED, HELD_OUT, SIDE = 10000, 2000, 28


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fake_data", nargs="?", const=True, type=bool, default=False)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--learning_rate", type=float, default=0.001)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--dropout", type=float, default=0.9, help="keep probability")
    parser.add_argument("--data_path", default="mnist.npz", help="of the original's data; it is not read")
    folder = os.path.join(os.environ.get("TEST_TMPDIR", "/tmp"), "tensorflow/mnist/logs/mnist_with_summaries")
    parser.add_argument("--log_dir", default=folder, help="of the summaries for TensorBoard")
    return parser.parse_args()


def data(flags, count, seed):
    """Batches of `count` pictures (28, 28, 1) and their labels."""
    pictures, labels = drawn_digits.enlarged(count, seed, SIDE)
    pictures = pictures[..., None]
    if flags.fake_data:
        pictures = np.random.RandomState(seed).normal(size=pictures.shape).astype(np.float32)
    return tf.data.Dataset.from_tensor_slices((pictures, labels)).shuffle(count, seed=seed).batch(flags.batch_size)


def build(flags):
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Input((SIDE, SIDE, 1)),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dropout(1 - flags.dropout),
            layers.Dense(10, activation="softmax"),
        ]
    )
    optimizer = tf.keras.optimizers.Adam(flags.learning_rate)
    model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def main():
    flags = arguments()
    print("Run script with args=%s" % flags, flush=True)
    summaries = tf.keras.callbacks.TensorBoard(log_dir=flags.log_dir, histogram_freq=1)
    held_out = data(flags, HELD_OUT, 1)
    model = build(flags)
    model.fit(data(flags, TRAINED, 101), epochs=flags.epochs, validation_data=held_out, callbacks=[summaries], verbose=2)


if __name__ == "__main__":
    main()
