"""What a terminal shows of the bytes that a program writes: as much of one as the commands of Trainyard use."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

COLUMNS, ROWS = 80, 24
COLOURS = {31: "r", 32: "g", 33: "y", 34: "u", 35: "m", 36: "c"}
SEQUENCE = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|\x1b\]([^\a]*)\a|([\r\n\b])|([^\x1b\r\n\b\a]+)|(.)", re.S)

Cell = tuple[str, str]  # a character, and its style: letters of a colour, b(old), d(im), i(nverse)
BLANK: Cell = (" ", "")
Row = tuple[Cell, ...]


def blank() -> list[list[Cell]]:
    return [[BLANK] * COLUMNS for _ in range(ROWS)]


@dataclass
class Screen:
    """A terminal of 80 columns and 24 rows. Raises ValueError at a sequence that it does not know."""

    cells: list[list[Cell]] = field(default_factory=blank)
    row: int = 0
    column: int = 0
    style: str = ""
    draws: int = 0  # how often the cursor went to the top
    commands: list[str] = field(default_factory=list)  # of the operating system (OSC), the newest last
    main: list[list[Cell]] | None = None  # while the alternate screen is shown
    place: tuple[int, int] = (0, 0)

    def rows(self) -> tuple[Row, ...]:
        return tuple(map(tuple, self.cells))

    def feed(self, text: str) -> None:
        for match in SEQUENCE.finditer(text):
            parameters, final, command, control, printed, unknown = match.groups()
            if final:
                self._sequence(parameters, final)
            elif command is not None:
                self.commands.append(command)
            elif control == "\n":
                self._line_feed()
            elif control:
                self.column = 0 if control == "\r" else max(0, self.column - 1)
            elif printed:
                self._print(printed)
            else:
                raise ValueError(f"unknown: {unknown!r} of {text!r}")

    def _print(self, text: str) -> None:
        for character in text:
            if self.column == COLUMNS:
                self.column = 0
                self._line_feed()
            self.cells[self.row][self.column] = (character, self.style)
            self.column += 1

    def _line_feed(self) -> None:
        if self.row < ROWS - 1:
            self.row += 1
        else:
            self.cells = [*self.cells[1:], [BLANK] * COLUMNS]

    def _sequence(self, parameters: str, final: str) -> None:
        number = int(parameters) if parameters.isdigit() else 0
        if final == "m":
            self._styled([int(value or 0) for value in parameters.split(";")])
        elif final == "K" and number == 0:
            self.cells[self.row][self.column :] = [BLANK] * (COLUMNS - self.column)
        elif final == "J" and number in (0, 2):
            row, column = (0, 0) if number else (self.row, self.column)
            self.cells[row][column:] = [BLANK] * (COLUMNS - column)
            self.cells[row + 1 :] = blank()[row + 1 :]
        elif final == "H" and not parameters:
            self.row = self.column = 0
            self.draws += 1
        elif final == "A":
            self.row = max(0, self.row - max(1, number))
        elif parameters == "?1049":
            self._alternate(final == "h")
        elif final not in "hl":
            raise ValueError(f"unknown sequence: ESC [ {parameters} {final}")

    def _alternate(self, begins: bool) -> None:
        if begins:
            self.main, self.place = self.cells, (self.row, self.column)
            self.cells = blank()
        elif self.main is not None:
            self.cells, self.main = self.main, None
            self.row, self.column = self.place

    def _styled(self, values: list[int]) -> None:
        for value in values:
            if value == 0:
                self.style = ""
            elif value in COLOURS:
                self.style = "".join(letter for letter in self.style if letter not in COLOURS.values()) + COLOURS[value]
            elif value in (1, 2, 7):
                self.style += {1: "b", 2: "d", 7: "i"}[value]
            elif value != 39:
                raise ValueError(f"unknown style: {value}")
