"""Parts of sentences: the closest word, and lists of words."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches


def closest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate that is most similar to the word; None if no candidate is similar."""
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    found = get_close_matches(word.lower(), by_lower, n=1)
    return by_lower[found[0]] if found else None


def enumerate_words(words: Sequence[str], conjunction: str) -> str:
    """The words as a list in a sentence: ``a``, ``a and b``, ``a, b and c``."""
    *others, last = words
    return f"{', '.join(others)} {conjunction} {last}" if others else last
