"""Small pieces of sentences."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches


def closest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate that looks most like the word, if any looks like it at all."""
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    found = get_close_matches(word.lower(), by_lower, n=1)
    return by_lower[found[0]] if found else None


def enumerate_words(words: Sequence[str], conjunction: str) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    *others, last = words
    return f"{', '.join(others)} {conjunction} {last}" if others else last
