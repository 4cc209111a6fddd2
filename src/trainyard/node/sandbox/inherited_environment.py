"""The environment variables that a container gets from the node process, as a container image would set them. Pure."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping
from fnmatch import fnmatch

# Variables that programs of this machine need to find their files and libraries; a container image would set these.
_INHERITED = (
    *("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "USER", "LOGNAME", "LD_LIBRARY_PATH"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
)
# Variables about the accelerators and threads that this shell may use. Ignoring CUDA_VISIBLE_DEVICES would take
# another user's GPU.
_DEVICE_PREFIXES = (
    *("CUDA_", "NVIDIA_", "NCCL_", "PYTORCH_", "HIP_", "ROCR_", "HSA_", "XLA_"),
    *("OMP_", "MKL_", "OPENBLAS_"),
)
_SWITCHES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")  # empty: no device
# Variables about the user's caches of models and data, and accounts of experiment trackers. Other users' pods do not
# get them.
_PERSONAL_PREFIXES = ("HF_", "TRANSFORMERS_", "WANDB_", "MLFLOW_", "COMET_")
_PERSONAL = ("TORCH_HOME", "KERAS_HOME", "TFDS_DATA_DIR", "TFHUB_CACHE_DIR", "XDG_CACHE_HOME")
PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


# Files of /dev: of GPUs that CUDA_VISIBLE_DEVICES selects, NVIDIA's (also Jetson and WSL) and AMD's; and of others.
_GPU_FILES = ("nvidia*", "nvhost*", "nvgpu*", "dxg", "kfd")
_ACCELERATOR_FILES = (*_GPU_FILES, "dri", "accel*", "davinci*", "hl*", "neuron*", "tpu*", "vfio")
CPU_ONLY = {"ACCELERATE_USE_CPU": "1", "PADDLE_DISTRI_BACKEND": "gloo"}
"""The variables of libraries that otherwise form no process group on CPUs: Hugging Face's accelerate starts N separate
trainings, and a program of PaddlePaddle has a rank, but no group."""


def is_inherited(name: str, proxies: bool = True, personal: bool = True) -> bool:
    """Whether a container gets this variable of the runner's environment. `proxies`: those, too; `personal`: the pods
    are the user's own."""
    if name in _INHERITED or name.startswith(_DEVICE_PREFIXES) or (proxies and name in PROXIES):
        return True
    return personal and (name in _PERSONAL or name.startswith(_PERSONAL_PREFIXES))


def inherited(environ: Mapping[str, str], proxies: bool, personal: bool = True) -> dict[str, str]:
    """The variables of `environ` that `is_inherited` selects and that are not empty, and PATH."""
    env = {name: value for name, value in environ.items() if value and is_inherited(name, proxies, personal)}
    env |= {name: "" for name in _SWITCHES if environ.get(name) == ""}
    env.setdefault("PATH", os.defpath)
    return env


def for_other_user(env: Mapping[str, str], home: str) -> dict[str, str]:
    """The variables for a program of another user with that home; a container runtime sets no more of them."""
    return {**{name: value for name, value in env.items() if name not in ("USER", "LOGNAME")}, "HOME": home}


def for_devices(env: Mapping[str, str], device_files: Collection[str], platform: str = sys.platform) -> dict[str, str]:
    """The variables on a machine whose /dev has these files: with CPU_ONLY if no accelerator can be used. Unchanged
    elsewhere than on Linux: macOS has no file for Apple's GPU.

    Without a GPU CUDA_VISIBLE_DEVICES selects nothing, and is left out: by it, also if it is empty, the launcher of
    PaddlePaddle for CPUs believes in a GPU, and its processes fail.
    """
    if platform != "linux":
        return dict(env)
    has_gpu = any(fnmatch(file, pattern) for file in device_files for pattern in _GPU_FILES)
    has_accelerator = any(fnmatch(file, pattern) for file in device_files for pattern in _ACCELERATOR_FILES)
    hides_all = env.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    usable = {name: value for name, value in env.items() if has_gpu or name != "CUDA_VISIBLE_DEVICES"}
    return usable if has_accelerator and not hides_all else {**CPU_ONLY, **usable}
