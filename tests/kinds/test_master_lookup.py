"""The lookup with which a worker of a PyTorchJob waits for its master, beside a DNS that keeps negative answers."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support.samples import kubeflow_job
from trainyard.core import Config, Slot, parse_job
from trainyard.kinds import PYTORCHJOB
from trainyard.kinds.kubeflow_v1.master_wait import UNCACHED_LOOKUP, wait_for_master
from trainyard.objects import Json

NO_ERROR, SERVER_FAILURE, NO_NAME = 0, 2, 3
NAME, CLUSTER = "example-master-0", "search default.svc.cluster.local svc.cluster.local cluster.local\n"


class CachingDNS:
    """A server that keeps NXDOMAIN for ever, by name and type, as CoreDNS does for 30 s. `codes`: its next answers to
    questions that it has not kept; the last one is that of all further ones."""

    def __init__(self, *codes: int) -> None:
        self.codes, self.questions = list(codes), list[tuple[str, int]]()
        self._kept = set[tuple[str, int]]()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            query, client = self._socket.recvfrom(512)
            if query == b"end":
                return
            self._socket.sendto(query[:2] + bytes([0x81, 0x80 | self._answer(query)]) + query[4:], client)

    def _answer(self, query: bytes) -> int:
        labels, offset = [], 12
        while size := query[offset]:
            labels.append(query[offset + 1 : offset + 1 + size].decode())
            offset += 1 + size
        question = (".".join(labels), struct.unpack_from(">H", query, offset + 1)[0])
        self.questions.append(question)
        if question in self._kept:
            return NO_NAME
        code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
        if code == NO_NAME:
            self._kept.add(question)
        return code

    def close(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.sendto(b"end", ("127.0.0.1", self.port))


@pytest.fixture
def resolv_conf(tmp_path: Path) -> Path:
    path = tmp_path / "resolv.conf"
    path.write_text(f"nameserver 127.0.0.1\n{CLUSTER}options ndots:5\n")
    return path


def look_up(dns: CachingDNS, resolv_conf: Path, questions: int = 100) -> str:
    """The output of the lookup beside that server."""
    program = UNCACHED_LOOKUP.replace("/etc/resolv.conf", str(resolv_conf)).replace("53)", f"{dns.port})")
    argv = [sys.executable, "-ES", "-c", program.replace("sleep(0.5)", "sleep(0)"), NAME, str(questions)]
    completed = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True)
    dns.close()
    return completed.stdout


def test_no_question_is_one_whose_answer_is_kept(resolv_conf: Path) -> None:
    """Neither the next question of the lookup, nor the program's own of an address afterwards."""
    dns = CachingDNS(NO_NAME, NO_NAME, NO_NAME, NO_ERROR)
    assert look_up(dns, resolv_conf) == "waiting for master\n"
    assert {name for name, _ in dns.questions} == {f"{NAME}.default.svc.cluster.local"}
    types = [record_type for _, record_type in dns.questions]
    assert types == [65280, 65281, 65282, 65283]  # for private use: none is A or AAAA


@pytest.mark.parametrize("code", [NO_ERROR, SERVER_FAILURE])
def test_another_answer_than_no_name_ends_it_at_once(resolv_conf: Path, code: int) -> None:
    dns = CachingDNS(code)
    assert look_up(dns, resolv_conf) == "" and len(dns.questions) == 1


def test_the_number_of_questions_is_bounded(resolv_conf: Path) -> None:
    dns = CachingDNS(NO_NAME)
    look_up(dns, resolv_conf, 5)
    assert len(dns.questions) == 5


@pytest.mark.parametrize("text", ["", "nameserver 127.0.0.1\n", "nameserver 127.0.0.1\nsearch corp.example\n", CLUSTER])
def test_only_the_dns_of_a_cluster_is_asked(resolv_conf: Path, text: str) -> None:
    resolv_conf.write_text(text)
    dns = CachingDNS(NO_NAME)
    assert look_up(dns, resolv_conf) == "" and not dns.questions


def test_without_an_answer_it_ends(resolv_conf: Path) -> None:
    dns = CachingDNS(NO_NAME)
    dns.close()
    look_up(dns, resolv_conf)


def test_an_image_without_python_pauses_before_its_first_question(tmp_path: Path) -> None:
    job = kubeflow_job("PyTorchJob", Master=1, Worker=1)
    template: Json = {"spec": {"containers": [{"name": "pytorch", "image": "x"}]}}
    wait_for_master(template, parse_job(PYTORCHJOB, job, Config()), Slot("Worker", 0))
    (container,) = template["spec"]["initContainers"]
    for name in ("sleep", "getent"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$@" >>{tmp_path}/calls\n')
        (tmp_path / name).chmod(0o755)
    shell, *arguments = container["command"]
    env = {"PATH": str(tmp_path), "MASTER_ADDR": NAME}
    subprocess.run([f"/bin/{shell}", *arguments], env=env, check=True, timeout=30)
    assert (tmp_path / "calls").read_text().splitlines() == ["sleep 2", f"getent hosts {NAME}"]
