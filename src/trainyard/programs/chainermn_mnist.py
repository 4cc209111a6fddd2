"""train_mnist.py of everpeace/chainermn: chainer_mnist.py with one process per rank of mpiexec.

Gradients are averaged by an allreduce over MPI. Without GPUs the communicator is always the naive one, and the
output says so as in the README. If a rank raises an exception, the whole job ends, because the others would wait for
it.
"""

import os
import sys
import warnings

import chainer_mnist


def main():
    # A line is one write, also unbuffered: mpiexec interleaves the output of its ranks write by write.
    sys.stdout.reconfigure(line_buffering=True, write_through=False)
    args = chainer_mnist.parser(mpi=True).parse_args()
    if chainer_mnist.problem(args):
        sys.exit(chainer_mnist.problem(args))
    warnings.simplefilter("ignore")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the ranks share the CPUs
    import chainermn
    import chainermn.global_except_hook

    chainermn.global_except_hook.add_hook()
    if args.gpu:
        print("--gpu: Chainer has no GPU here; training runs on the CPU", flush=True)
    if args.communicator != "naive":
        print("Warning: using naive communicator because only naive supports CPU-only execution", flush=True)
    comm = chainermn.create_communicator("naive")
    if comm.rank == 0:
        line = "=========================================="
        print(line)
        print("Num process (COMM_WORLD): %d" % comm.size)
        print("Using %s communicator" % args.communicator)
        print("Num unit: %d" % args.unit)
        print("Num Minibatch-size: %d" % args.batchsize)
        print("Num epoch: %d" % args.epoch)
        print(line, flush=True)
    chainer_mnist.train(args, comm)


if __name__ == "__main__":
    main()
