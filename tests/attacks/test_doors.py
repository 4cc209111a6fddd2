"""The attacks of `make attack`, with one seed and few rounds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.attacks.doors import FILE_ATTACKS, attack_cluster

SEED = 36


@pytest.mark.parametrize("attack", FILE_ATTACKS)
def test_files_of_somebody_else(attack: Callable[[int, int, Path], None], tmp_path: Path) -> None:
    attack(SEED, 50, tmp_path)


@pytest.mark.slow
async def test_ports_and_pages_of_a_cluster() -> None:
    await attack_cluster(SEED, 40, 2.0)
