"""`train.py` of Kubeflow's JAX example: all processes meet, and each adds the ones of all devices.

The operator sets COORDINATOR_ADDRESS, COORDINATOR_PORT, NUM_PROCESSES and PROCESS_ID.
"""

import os
import socket

import jax

jax.config.update("jax_cpu_collectives_implementation", "gloo")


def main():
    coordinator = "%s:%s" % (os.environ["COORDINATOR_ADDRESS"], os.environ["COORDINATOR_PORT"])
    jax.distributed.initialize(coordinator, int(os.environ["NUM_PROCESSES"]), int(os.environ["PROCESS_ID"]))
    host = socket.gethostname()
    print("JAX process %d/%d initialized on %s" % (jax.process_index(), jax.process_count() - 1, host))
    print("JAX global devices:%s" % jax.devices())
    print("JAX local devices:%s" % jax.local_devices())
    print("JAX device count:%d" % jax.device_count())
    print("JAX local device count:%d" % jax.local_device_count())
    ones = jax.numpy.ones(jax.local_device_count())
    print(jax.pmap(lambda number: jax.lax.psum(number, "i"), axis_name="i")(ones), flush=True)


if __name__ == "__main__":
    main()
