"""What others wrote cannot steer a terminal."""

from __future__ import annotations

import pytest

from trainyard.objects.printable import printable, printable_output, printable_with_our_colours

STEERING = [*range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0), 0x202E, 0x2066, 0x200F, 0x2028]


@pytest.mark.parametrize("code", STEERING)
def test_no_steering_character_is_left(code: int) -> None:
    text = f"a{chr(code)}b"
    assert chr(code) not in printable(text)
    assert chr(code) not in printable_with_our_colours(text)
    assert chr(code) not in printable_output(text.encode()).decode()


def test_ordinary_text_stays_and_a_value_stays_one_line() -> None:
    assert printable("é 中 🙂\ta\nb") == "é 中 🙂\ta\nb"
    assert printable("a\nb\rc\td", line=True) == r"a\nb\rc\td"
    assert printable("\x1b]0;title\x07") == r"\x1b]0;title\x07"


def test_only_our_own_colour_codes_are_kept() -> None:
    assert printable_with_our_colours("\x1b[32mup\x1b[0m") == "\x1b[32mup\x1b[0m"
    assert printable_with_our_colours("\x1b[2J\x1b[31mx") == "\\x1b[2J\x1b[31mx"


def test_a_programs_colours_end_with_its_line() -> None:
    assert printable_output(b"\x1b[1;31mred") == b"\x1b[1;31mred\x1b[0m"
    assert printable_output(b"\x1b[2J\x9b2J\xff") == "\\x1b[2J\ufffd2J\ufffd".encode()
