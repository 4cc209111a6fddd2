"""Replicas that find each other by what their kind tells them, as a framework does. The program of test_kinds.py.

The leader listens where the kind says that the others find it, and waits until every replica has told its host name. It
tells all of them the names, and ends them with exit code 0 when each has said that it is done. A replica that is lost
before that comes back alone or with all others, as its kind has it.

With LOST in its environment the replica ends with exit code 137 when it knows the names, once: the file of that name
says that this has happened.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import sys
import time
from typing import NamedTuple

PAUSE = 0.1


class Place(NamedTuple):
    """Who listens where, and how many replicas there are."""

    leads: bool
    size: int
    host: str
    port: int


def place() -> Place:
    """Read from the variables or the arguments of the kind."""
    env = os.environ
    if "TF_CONFIG" in env:
        config = json.loads(env["TF_CONFIG"])
        cluster, task = config["cluster"], config["task"]
        leading = next(role for role in ("master", "chief", "worker") if role in cluster)
        leads = (task["type"], task["index"]) == (leading, 0)
        return Place(leads, sum(map(len, cluster.values())), *address(cluster[leading][0]))
    if "DMLC_ROLE" in env:
        size = 1 + int(env["DMLC_NUM_SERVER"]) + int(env["DMLC_NUM_WORKER"])
        return Place(env["DMLC_ROLE"] == "scheduler", size, env["DMLC_PS_ROOT_URI"], int(env["DMLC_PS_ROOT_PORT"]))
    if "PADDLE_MASTER" in env:
        return Place("POD_IP_DUMMY" in env, int(env["PADDLE_NNODES"]), *address(env["PADDLE_MASTER"]))
    if "COORDINATOR_ADDRESS" in env:
        leads, size = env["PROCESS_ID"] == "0", int(env["NUM_PROCESSES"])
        return Place(leads, size, env["COORDINATOR_ADDRESS"], int(env["COORDINATOR_PORT"]))
    if "WORLD_SIZE" in env:
        return Place(env["RANK"] == "0", int(env["WORLD_SIZE"]), env["MASTER_ADDR"], int(env["MASTER_PORT"]))
    options = argparse.ArgumentParser()
    for name in ("backend", "endpoint", "id", "conf"):
        options.add_argument(f"--rdzv_{name}", default="")
    options.add_argument("--nnodes")
    arguments = options.parse_args()
    return Place(
        "is_host=1" in arguments.rdzv_conf, int(arguments.nnodes.split(":")[1]), *address(arguments.rdzv_endpoint)
    )


def address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def lead(own: Place) -> None:
    """Until every replica has said that it is done."""
    with socket.create_server(("", own.port), backlog=16) as server:
        members: dict[str, tuple[socket.socket, object]] = {}
        while True:
            while len(members) < own.size - 1:
                connection, _ = server.accept()
                lines = connection.makefile()
                members[lines.readline().strip()] = connection, lines
                say(f"{len(members) + 1} of {own.size} are here")
            names = " ".join(sorted([socket.gethostname(), *members]))
            for connection, _ in members.values():
                with contextlib.suppress(OSError):  # it is lost, which the next lines find
                    connection.sendall(f"{names}\n".encode())
            lost = [name for name, (_, lines) in members.items() if not line_of(lines)]
            if not lost:
                break
            for name in lost:
                say(f"{name} is lost")
                del members[name]
        say(f"all are here: {names}")
        for connection, _ in members.values():
            connection.sendall(b"end\n")


def line_of(lines: object) -> str:
    """The next line; empty when the other side is gone."""
    try:
        return str(lines.readline())  # type: ignore[attr-defined]
    except OSError:
        return ""


def follow(own: Place) -> None:
    """Join the leader; again, when it has been lost."""
    while True:
        try:
            with socket.create_connection((own.host, own.port)) as connection, connection.makefile() as lines:
                connection.sendall(f"{socket.gethostname()}\n".encode())
                while (line := lines.readline()) not in ("", "end\n"):
                    lose_once(os.environ.get("LOST", ""))
                    say(f"all are here: {line.strip()}")
                    connection.sendall(b"done\n")
                if line:
                    return
        except OSError:  # its name has no address yet, or it does not listen yet
            pass
        time.sleep(PAUSE)


def lose_once(path: str) -> None:
    if not path:
        return
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    say("it is lost")
    os._exit(137)


if __name__ == "__main__":
    where = place()
    (lead if where.leads else follow)(where)
