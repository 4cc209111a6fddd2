"""A data set without a download: images of the digits 0 to 9, generated from a seed, shifted, with noise.

The task is not trivial: a digit has nine possible positions in an image of 9 x 7 pixels, and the noise has a third
of the amplitude of the digit. Guessing gives 10 %; a single layer stays clearly below a small network.
"""

import numpy as np

HEIGHT, WIDTH, NOISE = 9, 7, 0.33
GLYPHS = """
.###. ..#.. .###. .###. ...#. ##### ..##. ##### .###. .###.
#...# .##.. #...# #...# ..##. #.... .#... ....# #...# #...#
#..## ..#.. ....# ....# .#.#. ####. #.... ...#. #...# #...#
#.#.# ..#.. ...#. ..##. #..#. ....# ####. ..#.. .###. .####
##..# ..#.. ..#.. ....# ##### ....# #...# .#... #...# ....#
#...# ..#.. .#... #...# ...#. #...# #...# .#... #...# ...#.
.###. .###. ##### .###. ...#. .###. .###. .#... .###. .##..
"""


def digits(count, seed):
    """`count` images (rows of HEIGHT * WIDTH numbers) and their labels."""
    rows = [line.split() for line in GLYPHS.split("\n") if line]
    ink = np.array([[[dot == "#" for dot in row[digit]] for row in rows] for digit in range(10)], np.float32)
    random = np.random.RandomState(seed)
    labels = random.randint(10, size=count)
    pictures = random.normal(0, NOISE, (count, HEIGHT, WIDTH)).astype(np.float32)
    downs, rights = random.randint(HEIGHT - 6, size=count), random.randint(WIDTH - 4, size=count)
    for picture, label, down, right in zip(pictures, labels, downs, rights):
        picture[down : down + 7, right : right + 5] += ink[label]
    return pictures.reshape(count, -1), labels


def enlarged(count, seed, side):
    """The same digits as grey images (count, side, side) with margins of zeros."""
    pictures, labels = digits(count, seed)
    scale = side // HEIGHT
    large = pictures.reshape(count, HEIGHT, WIDTH).repeat(scale, 1).repeat(scale, 2)
    down, right = (side - large.shape[1]) // 2, (side - large.shape[2]) // 2
    margins = ((down, side - large.shape[1] - down), (right, side - large.shape[2] - right))
    return np.pad(large, ((0, 0), *margins)), labels


def coloured(count, seed, height, width):
    """The same digits as colour images (count, 3, height, width): enlarged, with random foreground and background
    colours."""
    pictures, labels = digits(count, seed)
    random = np.random.RandomState(seed + 1)
    scale = max(1, min(height // HEIGHT, width // WIDTH))
    large = pictures.reshape(count, HEIGHT, WIDTH).repeat(scale, 1).repeat(scale, 2)[:, :height, :width]
    ground = random.uniform(-1, 0, (count, 3, 1, 1)).astype(np.float32)
    ink = random.uniform(0.5, 1.5, (count, 3, 1, 1)).astype(np.float32)
    coloured_images = np.broadcast_to(ground, (count, 3, height, width)).copy()
    down, right = (height - large.shape[1]) // 2, (width - large.shape[2]) // 2
    coloured_images[:, :, down : down + large.shape[1], right : right + large.shape[2]] += ink * large[:, None]
    return coloured_images, labels
