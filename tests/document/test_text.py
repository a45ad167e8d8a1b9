"""Files of TOML, and complaints that point into them."""

from pathlib import Path

import pytest

from vmcjob.document import Complaint, Document
from vmcjob.errors import NotFoundError, SpecError


def shown(text: str, offset: int) -> list[str]:
    """The lines of a complaint about an offset into a text."""
    return Document("t.toml", text, {}).render(Complaint(offset, "wrong")).split("\n")


def test_a_caret_stands_below_its_column() -> None:
    assert shown("a = 1\nb = 2\n", 10) == ["t.toml:2:5: wrong", "    b = 2", "        ^"]


def test_tabs_do_not_shift_a_caret() -> None:
    """A terminal draws a tab as it likes, so the line of the caret has the same tabs."""
    assert shown("\tb\t= 2", 5) == ["t.toml:1:6: wrong", "    \tb\t= 2", "    \t \t  ^"]


@pytest.mark.parametrize("offset", [0, 50, 500, 999])
def test_a_long_line_is_cropped_around_its_caret(offset: int) -> None:
    """A line of a thousand characters would push the caret off the screen."""
    text = "".join(chr(ord("a") + i % 26) for i in range(1000))
    address, line, caret = shown(text, offset)
    assert address == f"t.toml:1:{offset + 1}: wrong"
    assert len(line) == 104
    assert line[caret.index("^")] in (text[offset], "…")


def test_control_characters_do_not_reach_the_terminal() -> None:
    """A file could otherwise recolour the screen, or clear it."""
    _, line, _ = shown("a = \x1b[31m", 4)
    assert line == "    a = \ufffd[31m"


def test_a_missing_file_is_not_found() -> None:
    """Its exit code differs from that of a malformed file."""
    with pytest.raises(
        NotFoundError, match=r"^nowhere/h2.toml: no such file; there is no folder"
    ) as raised:
        Document.read(Path("nowhere/h2.toml"))
    assert raised.value.exit_code == 4


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot be read: is a directory"):
        Document.read(tmp_path)


def test_a_file_that_is_not_utf_8_is_shown_its_first_bad_byte(tmp_path: Path) -> None:
    """Old editors write Latin-1; the column counts characters, of which ö is one."""
    path = tmp_path / "h2.toml"
    path.write_bytes(b"\xef\xbb\xbf" + "a = 1\n# ö caf".encode() + b"\xe9\n")
    with pytest.raises(SpecError) as raised:
        Document.read(path)
    assert str(raised.value) == (
        f"{path}:2:8: not UTF-8: byte 0xe9; save the file as UTF-8\n    # ö caf\ufffd\n           ^"
    )


def test_byte_order_marks_and_line_ends_of_windows_are_read(tmp_path: Path) -> None:
    """They are invisible, so a complaint about them could not be understood."""
    path = tmp_path / "h2.toml"
    path.write_bytes(b"\xef\xbb\xbfa = 1\r\nb = 2\r\n")
    document = Document.read(path)
    assert document.tables == {"a": 1, "b": 2}
    assert document.render(Complaint(document.place(("b",)).value, "x")).startswith(
        f"{path}:2:5: x"
    )
