"""Distributed XGBoost: the ranks grow one set of trees, and all of them hold the same model."""

import hashlib
import os
import socket

import numpy
import xgboost
from xgboost.tracker import RabitTracker

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
host, port = socket.gethostbyname(os.environ["MASTER_ADDR"]), int(os.environ["MASTER_PORT"])
tracker = RabitTracker(n_workers=world, host_ip=host, port=port) if rank == 0 else None
if tracker is not None:
    tracker.start()
communicator = {"dmlc_tracker_uri": host, "dmlc_tracker_port": port, "dmlc_task_id": str(rank), "dmlc_retry": 60}
with xgboost.collective.CommunicatorContext(**communicator):
    rows = numpy.random.RandomState(rank).randn(400, 3)  # every rank has data of its own
    labels = (rows[:, 0] > 0).astype(float)
    data = xgboost.DMatrix(rows, labels)
    model = xgboost.train({"objective": "binary:logistic", "max_depth": 2, "nthread": 1}, data, 10)
    digest = hashlib.sha256(bytes(model.save_raw())).hexdigest()[:8]
    error = ((model.predict(data) > 0.5) != labels).mean()
    print("rank", rank, "of", world, "model", digest, "error", float(error), flush=True)
    xgboost.collective.allreduce(numpy.zeros(1), xgboost.collective.Op.SUM)  # nobody ends before all have printed
if tracker is not None:
    tracker.wait_for()
