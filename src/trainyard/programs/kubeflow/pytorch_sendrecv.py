"""`dist_sendrecv.py` of Kubeflow's PyTorch examples: the master sends a matrix to each worker, which squares it."""

import logging
import os

import torch
import torch.distributed as dist


def main():
    logging.info("Torch version: %s", torch.__version__)
    for name in ("MASTER_PORT", "MASTER_ADDR", "WORLD_SIZE", "RANK"):
        logging.info("%s: %s", name, os.environ.get(name, ""))
    dist.init_process_group("gloo")
    matrix, square = torch.randn(2, 2), torch.zeros(2, 2)
    if dist.get_rank():
        dist.recv(matrix, src=0)
        dist.send(matrix * matrix, dst=0)
    else:
        for rank in range(1, dist.get_world_size()):
            dist.send(matrix, dst=rank)
            dist.recv(square, src=rank)
            logging.info("Result from worker %d : %s", rank, square)
            if not torch.equal(square, matrix * matrix):
                raise SystemExit("worker %d sent another matrix than the square of %s" % (rank, matrix))
    dist.destroy_process_group()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    main()
