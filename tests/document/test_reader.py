"""Dataclasses read from documents, by what their annotations say."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest

from vmcjob.document import Clash, Document, Reader, at_least, keys_of, write
from vmcjob.errors import SpecError


@dataclass(frozen=True)
class Garden:
    """A table with a key of every sort, and two that can clash."""

    beds: Annotated[int, at_least(1), "how many beds"]
    trees: Annotated[int, at_least(0), "how many trees"] = 0
    soil: Literal["clay", "sand"] = "clay"
    depth: Annotated[float | None, at_least(0), "metres"] = None
    plan: Path = Path("plan.svg")
    herbs: tuple[str, ...] = ()

    def clashes(self) -> Iterator[Clash]:
        if self.trees > self.beds:
            yield Clash(("trees", "beds"), "more trees than beds")


@dataclass(frozen=True)
class Estate:
    """A document: a table inside the top level."""

    garden: Annotated[Garden, "the garden"]


def read(text: str) -> Estate:
    document = Document.parse(text, "t.toml")
    reader = Reader(document, Estate)
    return reader.finish(reader.root(Estate, document.tables))


def blamed(text: str) -> list[str]:
    """Which keys the complaints about a text are about."""
    with pytest.raises(SpecError) as raised:
        read(text)
    return [problem.split(": ")[1] for problem in raised.value.problems]


def test_a_document_becomes_a_dataclass() -> None:
    text = '[garden]\nbeds = 3\ndepth = 1\nplan = "p.png"\nherbs = ["dill", "rue"]\n'
    garden = Garden(3, depth=1.0, plan=Path("p.png"), herbs=("dill", "rue"))
    assert read(text) == Estate(garden)


def test_what_is_written_is_read_again() -> None:
    estate = Estate(Garden(2, 1, "sand", 0.1, Path('a "quoted"\tpath'), ("\x7f", "ü", "\\")))
    assert read(write(estate)) == estate


def test_a_key_is_described_by_its_annotation() -> None:
    """One place says all: a second list of keys would be wrong one day."""
    keys = keys_of(Garden)
    assert list(keys) == ["beds", "trees", "soil", "depth", "plan", "herbs"]
    assert keys["beds"].is_required
    assert (keys["depth"].kind.type, keys["depth"].kind.meaning) == (float, "metres")
    assert keys["soil"].kind.rules[0].choices == ("clay", "sand")
    assert keys_of(Estate)["garden"].is_table


def test_a_clash_is_found_beside_other_complaints() -> None:
    """All problems at once: a bad soil does not hide that there are too many trees."""
    assert blamed('garden = {beds = 1, trees = 2, soil = "mud"}') == ["garden.trees", "garden.soil"]


def test_a_clash_of_a_value_that_is_bad_in_itself_is_not_told() -> None:
    """Whether the default clashes in place of a bad value, nobody has asked."""
    assert blamed('garden = {beds = 1, trees = "two"}') == ["garden.trees"]
    assert blamed('garden = {beds = "one", trees = 2}') == ["garden.beds"]


def test_a_number_does_not_become_a_path() -> None:
    assert blamed("garden = {beds = 1, plan = 3}") == ["garden.plan"]
    assert blamed('garden = {beds = 1, plan = ""}') == ["garden.plan"]
