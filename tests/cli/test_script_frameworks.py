"""The framework that is guessed for a script: from its imports and those of the modules beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.script_values import program_job, script
from trainyard.cli.scripts.frameworks import guess_framework
from trainyard.objects.manifest import ManifestError

TRAIN = "train.py"


@pytest.mark.parametrize(
    ("files", "framework", "reason"),
    [
        ({TRAIN: ""}, "plain", "no framework among its imports"),
        ({TRAIN: "import os, sys\nimport numpy as np"}, "plain", "no framework among its imports"),
        ({TRAIN: "import os\nimport torch"}, "torch", "train.py:2 imports torch"),
        ({TRAIN: "import torch.nn.functional as F"}, "torch", "train.py:1 imports torch"),
        ({TRAIN: "from torch import nn"}, "torch", "train.py:1 imports torch"),
        ({TRAIN: "import pytorch_lightning as pl"}, "torch", "train.py:1 imports pytorch_lightning"),
        ({TRAIN: "from transformers import Trainer"}, "torch", "train.py:1 imports transformers"),
        ({TRAIN: "import tensorflow as tf"}, "tensorflow", "train.py:1 imports tensorflow"),
        ({TRAIN: "from keras import layers"}, "tensorflow", "train.py:1 imports keras"),
        ({TRAIN: "import flax.linen as nn"}, "jax", "train.py:1 imports flax"),
        ({TRAIN: "from mxnet import gluon"}, "mxnet", "train.py:1 imports mxnet"),
        ({TRAIN: "import chainermn"}, "chainer", "train.py:1 imports chainermn"),
        ({TRAIN: "from mpi4py import MPI"}, "mpi4py", "train.py:1 imports mpi4py"),
        # Several: MPI starts the processes; JAX reads data with the others; torch writes logs for TensorBoard.
        ({TRAIN: "import torch\nimport horovod.torch as hvd"}, "mpi4py", "train.py:2 imports horovod"),
        ({TRAIN: "from mpi4py import MPI\nimport chainer"}, "chainer", "train.py:2 imports chainer"),
        ({TRAIN: "import tensorflow\nimport torch\nimport jax"}, "jax", "train.py:3 imports jax"),
        ({TRAIN: "import tensorflow\nimport torch"}, "torch", "train.py:2 imports torch"),
        # Wherever the import stands, but not where only a type checker reads it.
        ({TRAIN: "def main():\n    import torch"}, "torch", "train.py:2 imports torch"),
        ({TRAIN: "try:\n    import torch\nexcept ImportError:\n    torch = None"}, "torch", "train.py:2 imports torch"),
        ({TRAIN: "if TYPE_CHECKING:\n    import torch\nelse:\n    import jax"}, "jax", "train.py:4 imports jax"),
        ({TRAIN: "# import torch\n'import torch'"}, "plain", "no framework among its imports"),
        # Modules beside the script; what is nearer decides.
        ({TRAIN: "import model", "model.py": "import torch"}, "torch", "model.py:1 imports torch"),
        ({TRAIN: "import lib.net", "lib/net.py": "import torch"}, "torch", "lib/net.py:1 imports torch"),
        ({TRAIN: "from lib import net", "lib/__init__.py": "", "lib/net.py": "import torch"}, "torch", "lib/net.py:1"),
        ({TRAIN: "import lib", "lib/__init__.py": "from .a import x", "lib/a.py": "import jax"}, "jax", "lib/a.py:1"),
        (
            {TRAIN: "import lib.a.b", "lib/a/b.py": "from ..c import x", "lib/c.py": "import torch"},
            "torch",
            "lib/c.py:1",
        ),
        ({TRAIN: "import a\nimport torch", "a.py": "import mpi4py"}, "torch", "train.py:2 imports torch"),
        ({TRAIN: "import a", "a.py": "import b", "b.py": "import a\nimport torch"}, "torch", "b.py:2 imports torch"),
        # A module of the user's own hides a framework of that name; a broken one beside the script says nothing.
        ({TRAIN: "import lightning", "lightning.py": ""}, "plain", "no framework among its imports"),
        ({TRAIN: "import a\nimport b", "a.py": "def (", "b.py": "import torch"}, "torch", "b.py:1 imports torch"),
    ],
)
def test_the_framework_and_the_reason(files: dict[str, str], framework: str, reason: str, tmp_path: Path) -> None:
    for name, text in files.items():
        script(tmp_path, text, name)
    guess = guess_framework(tmp_path / TRAIN, tmp_path)
    assert guess.framework == framework
    assert guess.reason.startswith(reason)


def test_modules_are_followed_for_some_layers_only(tmp_path: Path) -> None:
    for number in range(10):
        script(tmp_path, f"import m{number + 1}", f"m{number}.py")
    script(tmp_path, "import torch", "m10.py")
    assert guess_framework(tmp_path / "m0.py", tmp_path).framework == "plain"
    assert guess_framework(tmp_path / "m8.py", tmp_path).framework == "torch"


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        (b"import torch\nx = (\n", ":2", "was never closed"),
        (b"def f(:\n", ":1", "invalid syntax"),
        (b"\0", "", "null bytes"),
        ("# -*- coding: latin-1 -*-\nx = 'ä".encode("latin-1"), ":2", "unterminated string"),
    ],
)
def test_a_script_that_is_no_python_is_refused_with_its_line(
    text: bytes, place: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / TRAIN
    path.write_bytes(text)
    with pytest.raises(ManifestError) as caught:
        guess_framework(path, tmp_path)
    (problem,) = caught.value.problems
    assert f"{TRAIN}{place}" in str(problem) and message in problem.text
    assert "--framework" in problem.text or not place


ALONE = "train.py: each of the 2 processes trains alone, unless a library joins them: call what joins them"


@pytest.mark.parametrize(
    ("files", "note"),
    [
        ({TRAIN: "import torch\ntorch.nn.Linear(1, 1)"}, f"{ALONE} (torch.distributed.init_process_group"),
        ({TRAIN: "import torch\nimport model", "model.py": "def fit(): dist.init_process_group()"}, ""),
        ({TRAIN: "from accelerate import Accelerator"}, ""),
        ({TRAIN: "import tensorflow as tf"}, f"{ALONE} (tf.distribute.MultiWorkerMirroredStrategy)"),
        ({TRAIN: "import jax"}, f"{ALONE} (jax.distributed.initialize)"),
        ({TRAIN: "import jax\n\njax.distributed.initialize( )"}, "train.py:3 calls jax.distributed.initialize() "),
        ({TRAIN: "import jax\njax.distributed.initialize(address, 2, 0)"}, ""),
        ({TRAIN: "import xgboost"}, f"{ALONE} (xgboost.collective"),
        ({TRAIN: "import xgboost\nxgboost.collective.init()"}, "train.py:2 joins without arguments, and XGBoost reads"),
        ({TRAIN: "import mxnet"}, f"{ALONE} (mxnet.kv.create"),
        ({TRAIN: "from mpi4py import MPI"}, ""),
        ({TRAIN: "print(1)"}, ""),
    ],
)
def test_a_script_that_does_not_join_its_processes_is_named(
    files: dict[str, str], note: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in files.items():
        script(tmp_path, text, name)
    notes = program_job(TRAIN, workers=2).warnings
    assert len(notes) == bool(note) and all(text.startswith(note) for text in notes), notes
    assert program_job(TRAIN).warnings == ()
