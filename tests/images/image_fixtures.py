"""Images of catalogues that a test writes, and what they say."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainyard.node.images import ImageProblem, Images


@pytest.fixture
def messages() -> list[str]:
    return []


@pytest.fixture
def make(tmp_path: Path, messages: list[str]) -> Callable[..., Images]:
    """Images of catalogues given as text, with a cache of their own."""

    def make_images(*texts: str, uv: str | None = None, cache: Path | None = None, **more: Any) -> Images:
        files = []
        for at, text in enumerate(texts):
            files.append(tmp_path / f"images-{at}.yaml")
            files[-1].write_text(text)
        more = {"python": sys.executable, **more}
        return Images(files, cache or tmp_path / "cache", messages.append, uv=uv, **more)

    return make_images


async def refused(images: Images, image: str, need_command: bool = False) -> ImageProblem:
    with pytest.raises(ImageProblem) as caught:
        await images.prepare(image, need_command)
    return caught.value


def output(*argv: str, env: dict[str, str] | None = None) -> str:
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout.strip()
