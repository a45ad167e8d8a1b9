"""Read the atoms of an xyz file, also of an extended one; every mistake with its line and caret.

    3
    water, in angstrom
    O  0.0  0.0    0.1173
    H  0.0  0.7572 -0.4692
    H  0.0 -0.7572 -0.4692

Atoms may be symbols in any case or atomic numbers. Comments begin with #. Columns behind the
position are left out. The second line of an extended file says which columns it has.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from vmcjob.document import Complaint, Document, closest
from vmcjob.spec.elements import ISOTOPES, NUCLEAR_CHARGES, SYMBOLS

XyzAtom: TypeAlias = list[str | float]
"""Symbol and position, as `atoms` of a spec has them."""

_WORD: Final = re.compile(r"\S+")
_PROPERTIES: Final = re.compile(r'\bProperties\s*=\s*"?([^\s"]+)"?', re.IGNORECASE)
_LATTICE: Final = re.compile(r"\bLattice\s*=", re.IGNORECASE)
_NO_PERIOD: Final = re.compile(r'\bpbc\s*=\s*"?\s*(F(alse)?\s+){2}F(alse)?\b', re.IGNORECASE)
_SPECIES: Final = ("species", "z", "numbers")
_LIKE: Final = "O 0.0 0.0 0.1173"


class Word(NamedTuple):
    """A word of a line and its offset in the text."""

    offset: int
    text: str


@dataclass(frozen=True)
class Layout:
    """Which columns hold the element and the position, and how many columns there are."""

    species: int = 0
    position: int = 1
    n_columns: int | None = None  # None: any number beyond the position


@dataclass
class XyzText:
    """An xyz file in lines, and the complaints about it."""

    document: Document
    complaints: list[Complaint]

    def complain(self, offset: int, words: str) -> None:
        self.complaints.append(Complaint(offset, words))

    def lines(self) -> Iterator[tuple[int, str]]:
        """Offset and text of each line."""
        offset = 0
        for line in self.document.text.split("\n"):
            yield offset, line
            offset += len(line) + 1


def parse_xyz(text: str, source: str) -> list[XyzAtom]:
    """The atoms of an xyz file; SpecError with all complaints, which name the file `source`."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")
    file = XyzText(Document(source, text, {}), [])
    atoms = _read(file)
    file.document.refuse(file.complaints)
    return atoms


def _read(file: XyzText) -> list[XyzAtom]:
    lines = list(file.lines())
    first = next((i for i, (start, line) in enumerate(lines) if _words(start, line)), None)
    if first is None:
        file.complain(
            0, f'the file is empty; expected the number of atoms, a comment and "{_LIKE}"'
        )
        return []
    count = _read_count(file, *lines[first])
    if count is None:
        return []
    comment = lines[first + 1] if first + 1 < len(lines) else (len(file.document.text), "")
    layout = _read_layout(file, *comment)
    rows = [words for start, line in lines[first + 2 :] if (words := _words(start, line))]
    atoms = [atom for row in rows[:count] if (atom := _read_atom(file, row, layout))]
    if len(rows) < count:
        _complain_of_few(file, lines[first][0], comment, count, len(rows))
    elif len(rows) > count:
        words = f"there is more after the {count} atoms that the first line announces; "
        file.complain(rows[count][0].offset, words + "correct the number, or keep one geometry")
    return atoms


def _words(start: int, line: str) -> list[Word]:
    """The words of a line before its comment."""
    content = line.partition("#")[0]
    return [Word(start + found.start(), found.group()) for found in _WORD.finditer(content)]


def _read_count(file: XyzText, start: int, line: str) -> int | None:
    """The number of atoms in the first line; a complaint and None for anything else."""
    words = _words(start, line)
    is_number = len(words) == 1 and words[0].text.isascii() and words[0].text.isdigit()
    if is_number and (count := int(words[0].text[:9])) > 0:
        return count
    advice = "an xyz file begins with the number of atoms, and a line of comment"
    file.complain(
        words[0].offset, f"expected the number of atoms, got {_quote(line.strip())}; {advice}"
    )
    return None


def _read_layout(file: XyzText, start: int, line: str) -> Layout:
    """The columns that the comment line of an extended file declares."""
    if (lattice := _LATTICE.search(line)) and not _NO_PERIOD.search(line):
        words = 'a lattice: molecules only are computed here; remove it, or write pbc="F F F"'
        file.complain(start + lattice.start(), words)
    found = _PROPERTIES.search(line)
    if found is None:
        return Layout()
    parts = found.group(1).split(":")
    names, widths = parts[::3], parts[2::3]
    if len(parts) % 3 or not all(width.isdigit() for width in widths):
        file.complain(start + found.start(), "expected Properties=name:type:columns:…")
        return Layout()
    firsts = {name.lower(): sum(map(int, widths[:i])) for i, name in enumerate(names)}
    species = next((firsts[name] for name in _SPECIES if name in firsts), None)
    if species is None or "pos" not in firsts:
        words = "expected the columns species (or Z) and pos among Properties"
        file.complain(start + found.start(), words)
        return Layout()
    return Layout(species, firsts["pos"], sum(map(int, widths)))


def _read_atom(file: XyzText, row: Sequence[Word], layout: Layout) -> XyzAtom | None:
    """One atom; None after a complaint."""
    least = layout.n_columns or layout.position + 3
    if len(row) < least:
        words = f'expected {least} columns, as in "{_LIKE}", got {len(row)}'
        if layout.n_columns:
            words = f"expected the {least} columns that Properties declares, got {len(row)}"
        file.complain(row[0].offset, words)
        return None
    symbol = _read_element(file, row[layout.species])
    numbers = [_read_number(file, row[layout.position + i]) for i in range(3)]
    if symbol is None or None in numbers:
        return None
    return [symbol, *(number for number in numbers if number is not None)]


def _read_element(file: XyzText, word: Word) -> str | None:
    """The symbol of an element from a symbol in any case or an atomic number."""
    if word.text.isascii() and word.text.isdigit():
        if 1 <= (charge := int(word.text[:4])) <= len(SYMBOLS):
            return SYMBOLS[charge - 1]
        file.complain(word.offset, f"expected an atomic number from 1 to {len(SYMBOLS)}")
        return None
    symbol = word.text.capitalize()
    if symbol in NUCLEAR_CHARGES:
        return symbol
    if symbol in ISOTOPES:
        words = f"{ISOTOPES[symbol]} is an isotope of hydrogen, and no mass counts here; write H"
        file.complain(word.offset, words)
        return None
    letters = re.sub(r"[^A-Za-z].*", "", word.text).capitalize()
    near = letters if letters in NUCLEAR_CHARGES else closest(word.text, SYMBOLS)
    advice = f"; did you mean {near}?" if near else ""
    file.complain(
        word.offset, f"expected the symbol of an element, got {_quote(word.text)}{advice}"
    )
    return None


def _read_number(file: XyzText, word: Word) -> float | None:
    """A coordinate; Fortran's exponents, as in 1.0D-3, are understood."""
    try:
        number = float(word.text.lower().replace("d", "e"))
    except ValueError:
        number = math.nan
    if math.isfinite(number) and "_" not in word.text:
        return number
    advice = ""
    if re.fullmatch(r"[-+]?\d+,\d+", word.text):
        advice = f"; write {word.text.replace(',', '.')}"
    file.complain(word.offset, f"expected a number, got {_quote(word.text)}{advice}")
    return None


def _complain_of_few(
    file: XyzText, start: int, comment: tuple[int, str], count: int, found: int
) -> None:
    """Fewer atoms than announced; the reason may be that the comment line is missing."""
    words = f"{count} atom{'s' * (count > 1)} announced, {found} found"
    offset, line = comment
    row = _words(offset, line)
    if found == count - 1 and len(row) >= 4 and row[0].text.capitalize() in NUCLEAR_CHARGES:
        file.complain(offset, f"{words}: the second line is a comment; insert an empty line here")
    else:
        file.complain(start, f"{words}; correct the number, or add the missing lines")


def _quote(text: str) -> str:
    short = text if len(text) <= 40 else f"{text[:39]}…"
    return f'"{short}"'
