"""What is not TOML: the place of the slip, and what to write instead."""

import re

import pytest

from vmcjob.document import Document
from vmcjob.errors import SpecError


@pytest.mark.parametrize(
    ("text", "address", "words"),
    [
        ("a = h2", "1:5", 'text needs quotes: "h2"'),
        ("a = 16GB", "1:5", 'text needs quotes: "16GB"'),
        ("a = [1, 16GB]", "1:9", 'text needs quotes: "16GB"'),
        ("a = 1979-13-01", "1:5", 'text needs quotes: "1979-13-01"'),
        ("a = TRUE", "1:5", "write true, in lower case"),
        ("a = null", "1:5", "TOML has no word for nothing; leave the key out"),
        ("a = .5", "1:5", "a number has digits on both sides of its point, like 0.5"),
        ("a = [0., 1]", "1:6", "a number has digits on both sides of its point, like 0.0"),
        ("a = -007", "1:5", "a number does not begin with 0; write -7"),
        ("a =\nb = 1", "1:4", "a value is missing"),
        ("a", "1:2", '"=" is missing, as in key = value'),
        ("a: 1", "1:2", '"=" is missing, as in key = value'),
        ("= 1", "1:1", "expected a [table], a key = value or a # comment"),
        ("[]", "1:2", "a key is missing"),
        ("[a\nb = 1", "1:3", "a closing bracket is missing"),
        ("a = 1 b = 2", "1:7", "nothing more may stand in this line"),
        ("a = [1 2]", "1:8", "a comma or a closing bracket is missing"),
        ("a = [[1], [2]\nb = 1", "1:5", "this bracket is never closed"),
        ("a = [[1], [2],\nb = 1", "1:5", "this bracket is never closed"),
        ("a = [[1], [2]\n", "1:5", "this bracket is never closed"),
        ("a = {b = 1", "1:5", "this bracket is never closed"),
        ('a = "b\nc = 1', "1:5", "this string is not closed in its line"),
        ("a = 'b\nc = 'd'", "1:5", "this string is not closed in its line"),
        ('a = [["b, 1]]\n', "1:7", "this string is not closed in its line"),
        ('a = """b\nc = 1', "1:5", "this string is never closed"),
        ("a = 'b", "1:5", "this string is never closed"),
        (r'a = "\d"', "1:8", "write a backslash twice, or put the text in single quotes"),
        ("a = 1\na = 2", "2:1", "a is given twice, first in line 1"),
        ("[a]\nb.c = 1\nb.c = 2", "3:3", "a.b.c is given twice, first in line 2"),
        ("[a]\n[b]\n[a]", "3:2", "a is given twice, first in line 1"),
        ("a = {b = 1, b = 2}", "1:13", "a.b is given twice, first in line 1"),
        ("a = " + "[" * 5000, "1:1", "brackets are nested too deeply"),
        ("a = " + "9" * 5000, "1:1", "a number has too many digits"),
    ],
)
def test_a_slip_is_shown_where_it_was_made(text: str, address: str, words: str) -> None:
    """A parser is often stuck lines later: at the end of the file, for a bracket left open."""
    with pytest.raises(
        SpecError, match=f"^t.toml:{address}: not valid TOML: {re.escape(words)}(\n|$)"
    ):
        Document.parse(text, "t.toml")


def test_an_unforeseen_slip_keeps_the_words_of_the_parser() -> None:
    """Whatever else a parser dislikes, its address and sentence reach the user."""
    with pytest.raises(SpecError, match=r"^t.toml:2:\d+: not valid TOML: cannot mutate"):
        Document.parse("a = {b = 1}\na.c = 2", "t.toml")
