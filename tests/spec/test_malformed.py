"""The catalogue of malformed specs: each complaint is what its page promises, to the letter."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from vmcjob.errors import SpecError
from vmcjob.spec import parse_spec

_ENTRY = re.compile(
    r"^### (.+?)\n\n```toml\n(.*?\n)```\n\n```text\n(.*?)\n```$", re.MULTILINE | re.DOTALL
)


class Entry(NamedTuple):
    title: str
    spec: str
    complaints: str


CATALOGUE = [
    Entry(*found)
    for found in _ENTRY.findall(
        Path(__file__).with_name("malformed.md").read_text(encoding="utf-8")
    )
]


@pytest.mark.parametrize("entry", CATALOGUE, ids=[entry.title for entry in CATALOGUE])
def test_a_malformed_spec_is_told(entry: Entry) -> None:
    """These texts are what users see on a bad day, so a change to one of them is a decision."""
    with pytest.raises(SpecError) as raised:
        parse_spec(entry.spec, "job.toml")
    assert str(raised.value) == entry.complaints


def test_the_catalogue_is_read_whole() -> None:
    """An entry that the pattern above misses would be an entry that is never tested."""
    page = Path(__file__).with_name("malformed.md").read_text(encoding="utf-8")
    assert len(CATALOGUE) == page.count("### ") == page.count("```toml") >= 20
