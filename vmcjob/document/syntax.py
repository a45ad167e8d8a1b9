"""Explain why a text is not TOML, in words that the user understands.

A parser stops where it cannot go on, which may be far behind the mistake, and reports what it
expected next. This module moves the place back to the mistake and says how to correct it.
"""

import re
from collections.abc import Callable
from typing import TypeAlias

import tomli

from vmcjob.document.positions import Scan
from vmcjob.document.writer import format_path, format_short

Slip: TypeAlias = tuple[int, str]
"""A mistake: its offset in the text, and a sentence about it."""

_WORD = re.compile(r"[^\s,=\[\]{}#\"']+")
_KEY_AND_EQUALS = re.compile(r"[\w.\"'-]+[ \t]*=")


def explain(problem: tomli.TOMLDecodeError) -> Slip:
    """Find the mistake behind a parser's error; keep the parser's words if it is unknown."""
    for beginning, find in _SLIPS.items():
        if problem.msg.startswith(beginning) and (slip := find(problem.doc, problem.pos)):
            return slip
    return problem.pos, problem.msg[:1].lower() + problem.msg[1:]


def _repeated_key(text: str, stuck: int) -> Slip | None:
    last = Scan(text[:stuck]).last
    if last is None or last.earlier is None:
        return None
    line = text.count("\n", 0, last.earlier.key) + 1
    return last.place.key, f"{format_path(last.path)} is given twice, first in line {line}"


def _missing_value(text: str, stuck: int) -> Slip | None:
    if _KEY_AND_EQUALS.match(text, stuck):
        return _unclosed_bracket(text, stuck)
    return _bare_word(text, stuck, stuck) or (stuck, "a value is missing")


def _unwanted_rest(text: str, stuck: int) -> Slip | None:
    begun = Scan(text[:stuck]).last_value
    return _bare_word(text, begun, stuck) or (stuck, "nothing more may stand in this line")


def _missing_comma(text: str, stuck: int) -> Slip | None:
    if stuck == len(text) or _KEY_AND_EQUALS.match(text, stuck):
        return _unclosed_bracket(text, stuck)
    begun = Scan(text[:stuck]).last_value
    return _bare_word(text, begun, stuck) or (stuck, "a comma or a closing bracket is missing")


def _bare_word(text: str, start: int, stuck: int) -> Slip | None:
    """The mistake of a word that is not a value, though its beginning may be one (16 in 16GB)."""
    word = _WORD.match(text, start)
    return (start, _about_word(word.group())) if word and word.end() > stuck else None


def _about_word(word: str) -> str:
    if word.lower() in ("true", "false"):
        return f"write {word.lower()}, in lower case"
    if word.lower() in ("none", "null", "nil"):
        return "TOML has no word for nothing; leave the key out"
    if re.fullmatch(r"[-+]?\.\d+|[-+]?\d+\.", word):
        return f"a number has digits on both sides of its point, like {float(word)}"
    if number := re.fullmatch(r"([-+]?)0+(\d+)", word):
        return f"a number does not begin with 0; write {number[1]}{number[2]}"
    if (text := word.strip("“”„‟‘’‚`")) != word:
        return f"text needs straight quotes: {format_short(text)}"
    return f"text needs quotes: {format_short(word)}"


def _unclosed_bracket(text: str, stuck: int) -> Slip | None:
    brackets = Scan(text[:stuck]).open_brackets
    return (brackets[-1], "this bracket is never closed") if brackets else None


def _unclosed_string(text: str, stuck: int) -> Slip | None:
    return Scan(text[:stuck]).last_value, "this string is never closed"


def _string_over_line_end(text: str, stuck: int) -> Slip | None:
    if text[stuck] != "\n":
        return None
    line_start = text.rfind("\n", 0, stuck) + 1
    opening = max(line_start, Scan(text[:stuck]).last_value)
    return opening, "this string is not closed in its line"


def _here(words: str) -> Callable[[str, int], Slip]:
    return lambda text, stuck: (stuck, words)


_SLIPS: dict[str, Callable[[str, int], Slip | None]] = {
    "Cannot overwrite": _repeated_key,
    "Cannot declare": _repeated_key,
    "Duplicate inline": _repeated_key,
    "Invalid value": _missing_value,
    "Expected newline": _unwanted_rest,
    "Unclosed": _missing_comma,
    "Unterminated string": _unclosed_string,
    "Expected \"'": _unclosed_string,
    "Illegal character": _string_over_line_end,
    "Found invalid character": _string_over_line_end,
    "Expected '='": _here('"=" is missing, as in key = value'),
    "Expected ']": _here("a closing bracket is missing"),
    "Invalid statement": _here("expected a [table], a key = value or a # comment"),
    "Invalid initial character": _here("a key is missing"),
    "Unescaped": _here("write a backslash twice, or put the text in single quotes"),
}
"""The function that finds the mistake, by the beginning of the parser's error."""
