"""Helm 3, built once into a cache: many clusters are installed with it. Helm 4 is a program of the control plane.

$XDG_CACHE_HOME/trainyard/helm-3/KEY/helm
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from tests.support.control_plane_build import Say, build_lock, cache_folder, find_go, run_go

MODULE = Path(__file__).resolve().parents[2] / "tools" / "helm-3"
FLAGS = ("-mod=readonly", "-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false", "-ldflags=-s -w")


def built(say: Say) -> Path:
    """The program. Raises BuildError."""
    go = find_go()
    digest = hashlib.sha256(f"{go.version}\0{FLAGS}\0".encode())
    for name in ("go.mod", "go.sum"):
        digest.update((MODULE / name).read_bytes())
    place = cache_folder("helm-3") / digest.hexdigest()[:16]
    place.parent.mkdir(parents=True, exist_ok=True)
    with build_lock(place.parent, "Helm 3", say):
        if not place.is_dir():
            say("building Helm 3: one to two minutes on two cores, once")
            part = place.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)  # of a build that was killed
            (part / "work").mkdir(parents=True)
            run_go(go, ["build", *FLAGS, "-o", f"{part}/", "helm.sh/helm/v3/cmd/helm"], MODULE, part / "work")
            shutil.rmtree(part / "work")
            for old in place.parent.glob("[0-9a-f]*"):
                if old != part:
                    shutil.rmtree(old)
            part.rename(place)
    return place / "helm"
