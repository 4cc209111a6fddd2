"""Where the pixels of a curve are."""

from __future__ import annotations

from itertools import pairwise

from tests.page.browser.conftest import Browser

LIGHT, DARK = [0x1F, 0x5F, 0xD0], [0x7F, 0xB0, 0xFF]  # --accent of style.css
LIGHT_RUNS = [LIGHT, [0xC2, 0x41, 0x0C], [0x1A, 0x7F, 0x42]]  # --run-0 to --run-2
DARK_RUNS = [DARK, [0xFF, 0x9A, 0x5C], [0x46, 0xB9, 0x6A]]
# For some columns of the chart, `step` pixels apart: the mean height of the pixels of one colour, from the top.
HEIGHTS = """((colour, step = 20) => {
  const canvas = document.querySelector('.curve canvas');
  const {width, height} = canvas, {data} = canvas.getContext('2d').getImageData(0, 0, width, height);
  const heights = [];
  for (let x = 70; x < width - 10; x += step) {
    const rows = [];
    for (let y = 0; y < height; y++) {
      const at = (y * width + x) * 4;
      if (data[at + 3] > 200 && Math.abs(data[at] - colour[0]) + Math.abs(data[at + 1] - colour[1]) + Math.abs(data[at + 2] - colour[2]) < 60) rows.push(y);
    }
    if (rows.length) heights.push(rows.reduce((sum, y) => sum + y) / rows.length);
  }
  return heights;
})"""  # noqa: E501


# The share of the columns from 70 to 470 that have a pixel of that colour: all of a solid line, some of a dashed one.
COVERED = """((colour) => {
  const canvas = document.querySelector('.curve canvas');
  const {width, height} = canvas, {data} = canvas.getContext('2d').getImageData(0, 0, width, height);
  let covered = 0;
  for (let x = 70; x < 470; x++) {
    for (let y = 0; y < height; y++) {
      const at = (y * width + x) * 4;
      if (data[at + 3] > 200 && Math.abs(data[at] - colour[0]) + Math.abs(data[at + 1] - colour[1]) + Math.abs(data[at + 2] - colour[2]) < 60) {
        covered++;
        break;
      }
    }
  }
  return covered / 400;
})"""  # noqa: E501


def assert_falls(browser: Browser) -> None:
    """Wait until the first curve is drawn in light colours; its pixels fall from left to right."""
    heights = browser.until(f"(heights => heights.length > 5 && heights)({HEIGHTS}(args[0]))", LIGHT)
    assert heights[0] + 50 < heights[-1], heights
    assert all(before <= after + 1 for before, after in pairwise(heights)), heights
