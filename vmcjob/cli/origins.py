"""Parts of `show`: who gave each value of a run's spec, and each option of its job."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from vmcjob.cli.text import align_facts

if TYPE_CHECKING:
    from vmcjob.rundir import RunDir

DEFAULT = "default"
WIDTH = 32  # characters before a comment; longer lines have it two spaces after their end


def annotate(text: str, origins: Mapping[str, str] | None) -> str:
    """The text of a resolved spec with the origin of each value as a comment.

    Without origins, as of a run of an earlier release, the text stays as it is.
    """
    if origins is None:
        return text
    lines = (
        f"{line:<{WIDTH}}  # {origins.get(key, DEFAULT)}" if key else line
        for line, key in _lines(text)
    )
    return "\n".join(lines)


def all_origins(text: str, origins: Mapping[str, str] | None) -> dict[str, str] | None:
    """The origin of each key of a resolved spec, by names like "sampler.walkers"."""
    if origins is None:
        return None
    return {key: origins.get(key, DEFAULT) for _, key in _lines(text) if key}


def describe_options(run: "RunDir") -> str:
    """One line for each option of the run's job: its name and who gave it; empty without a job."""
    submission, origins = run.read_submission(), run.read_origins() or {}
    asked_by = (submission and submission.asked_by) or {}
    facts = {}
    for name, words in asked_by.items():
        place = origins.get(str(words))
        facts[name] = f"{words}, {place}" if place else str(words)
    return align_facts(facts)


def _lines(text: str) -> Iterator[tuple[str, str]]:
    """Each line of a resolved spec with the name of its key; empty for other lines."""
    table = ""
    for line in text.splitlines():
        name, sign, _ = line.partition(" = ")
        if sign:
            yield line, table + name
        else:
            table = f"{line.strip('[]')}." if line else table
            yield line, ""
