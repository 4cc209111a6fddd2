from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cuda_stand_ins import write_stand_ins

pytestmark = pytest.mark.frameworks  # it needs the compiler that their environments need

SOURCES = {
    "libgone.so.1": "int plain(void) { return 1; } int named(void) { return 2; }",
    "libhere.so.1": "int present(void) { return 3; }",
    "libmiddle.so.1": "int plain(void); int named(void); int present(void);\n"
    "int middle(int call) { return call ? plain() + named() : present(); }",
}
VERSIONS = "GONE_1 { named; };"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three libraries: one needs the others, one of which is removed when all are linked."""
    (tmp_path / "versions").write_text(VERSIONS)
    for name, source in SOURCES.items():
        (tmp_path / "source.c").write_text(source)
        needed = [path.name for path in tmp_path.glob("lib*")] if "middle" in name else []
        script = ["-Wl,--version-script=versions"] if "gone" in name else []
        libraries = ["-L.", *(f"-l:{library}" for library in needed)]
        options = ["-shared", "-fPIC", f"-Wl,-soname,{name}", "-Wl,-z,now", "-Wl,-rpath,$ORIGIN", *script]
        subprocess.run(["gcc", *options, "-o", name, "source.c", *libraries], cwd=tmp_path, check=True)
    (tmp_path / "libgone.so.1").unlink()
    return tmp_path


def loaded(folder: Path, call: int) -> subprocess.CompletedProcess[str]:
    program = f"import ctypes; print(ctypes.CDLL('{folder}/libmiddle.so.1').middle({call}))"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


def test_a_library_loads_with_a_stand_in_for_the_one_that_is_missing(folder: Path) -> None:
    assert "libgone.so.1: cannot open shared object file" in loaded(folder, 0).stderr
    assert write_stand_ins(folder, "libmiddle.so.1") == ["libgone.so.1"]
    assert loaded(folder, 0).stdout == "3\n"
    assert write_stand_ins(folder, "libmiddle.so.1") == []


def test_a_call_of_a_stand_in_names_the_symbol_and_aborts(folder: Path) -> None:
    write_stand_ins(folder, "libmiddle.so.1")
    called = loaded(folder, 1)
    assert called.returncode == -signal.SIGABRT
    assert "libgone.so.1: plain has no code here" in called.stderr
