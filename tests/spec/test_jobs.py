"""The jobs that come with vmcjob."""

import re
from pathlib import Path

import pytest

from vmcjob.spec import parse_spec, read_spec

JOBS = sorted((Path(__file__).parents[2] / "jobs").glob("*.toml"))


def test_there_are_jobs_to_start_from() -> None:
    """The parametrized tests below would pass on an empty folder."""
    assert {"h", "he", "h2"} <= {path.stem for path in JOBS}


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_a_shipped_job_is_valid_and_called_like_its_file(path: Path) -> None:
    """They are the first thing that anybody runs, and `vmcjob aggregate h2` goes by the name."""
    assert read_spec(path).name == path.stem


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_a_shipped_job_knows_its_answer(path: Path) -> None:
    """A job without a reference teaches nothing about whether the result is right.

    The points of a sweep have one each, which its first comment lists by coordinate.
    """
    for point in read_spec(path).points:
        known = " ".join(str(value) for value in point.coordinates.values())
        listed = re.search(rf"^#.* {re.escape(known)} -\d", path.read_text("utf-8"), re.MULTILINE)
        assert point.spec.system.reference is not None or (known and listed)


def test_the_sweep_in_a_comment_of_the_tutorial_works() -> None:
    """A comment that teaches has to be true: uncommented, with its coordinate, it is a sweep."""
    text = next(path for path in JOBS if path.stem == "h2").read_text(encoding="utf-8")
    text = text.replace('"H", 0.0, 0.0, 1.4', '"H", 0.0, 0.0, "{R}"')
    for line in ["[sweep]", "R = ", '"optimizer.damping"']:
        assert f"# {line}" in text
        text = text.replace(f"# {line}", line)
    assert len(parse_spec(text, "h2.toml").points) == 8
