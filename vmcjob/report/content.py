"""What is on a page, as plain values: texts and pictures, nothing of HTML."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Picture:
    """A picture as SVG, and what it shows."""

    caption: str
    svg: str


@dataclass(frozen=True)
class RunFacts:
    """One run: in words, and as texts that are shown as they are."""

    run_id: str
    facts: Mapping[str, str]
    texts: Mapping[str, str]  # spec, explanation and the like, by title
    picture: Picture | None = None


@dataclass(frozen=True)
class Content:
    """A page: a table with its notes, how each row came about, and the runs."""

    title: str
    facts: Mapping[str, str]  # about the page itself
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str]  # what is not in the table, and why
    explanations: Mapping[str, str]  # by row
    runs: Sequence[RunFacts]
