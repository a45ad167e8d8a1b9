"""The content of a page as plain values: texts and pictures, without HTML."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Picture:
    """A picture as SVG, and what it shows."""

    caption: str
    svg: str


@dataclass(frozen=True)
class PageTable:
    """Titles of columns, and a line of texts for each row."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class CurveFacts:
    """The energies of a sweep as a picture, and the constants of its minimum or why it has none."""

    name: str
    facts: Mapping[str, str]
    picture: Picture


@dataclass(frozen=True)
class RunFacts:
    """One run: in words, and as texts that are shown as they are."""

    run_id: str
    facts: Mapping[str, str]
    texts: Mapping[str, str]  # spec, explanation and the like, by title
    pictures: Sequence[Picture] = ()


@dataclass(frozen=True)
class Content:
    """A page: tables, what is in none of them, how each row came about, and the runs."""

    title: str
    facts: Mapping[str, str]  # about the page itself
    energies: PageTable  # with the verdict and the note of each row
    sums: PageTable
    curves: Sequence[CurveFacts]
    details: PageTable  # more numbers about the rows
    observables: PageTable
    notes: Sequence[str]  # what is not in the tables, and why
    explanations: Mapping[str, str]  # by row
    runs: Sequence[RunFacts]
