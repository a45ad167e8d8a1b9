"""Specs damaged at random: whatever stands in a file, users get complaints, never a traceback.

`pytest tests/spec/test_fuzz.py --cases 200000` reads more of them.
"""

import random
import re
from pathlib import Path

import pytest

from tests.spec.test_malformed import CATALOGUE
from vmcjob.errors import SpecError
from vmcjob.spec import parse_spec

JOBS = Path(__file__).parents[2] / "jobs"
SEEDLINGS = [entry.spec for entry in CATALOGUE] + [
    path.read_text(encoding="utf-8") for path in sorted(JOBS.glob("*.toml"))
]
FRAGMENTS = [
    *"[]{}\"'=.,#\n\t \\-+_e0123456789", '"""', "'''", "[[", "]]", "\r\n", "é", "🙂", "\x00",
    "true", "inf", "nan", "1e999", "0x" + "f" * 4000, "9" * 5000, "1979-05-27T07:32:00Z",
    "07:32:00", "[" * 300, "{a=" * 300, "[" * 300 + "]" * 300, '"{R/0}"', '"{R}"', "[sweep]\n",
    "[[system]]\n", "seeds = [1, 2]\n", "\nsystem.atoms = 3\n", "R = [0.0, 1]\n",
    '"sampler.steps" = [1, [2], {}]\n',
]  # fmt: skip
PROBLEM = re.compile(r"job\.toml:(\d+):(\d+): \S.*(\n    .*\n    \s*\^)?")


def damage(text: str, rng: random.Random) -> str:
    """Up to four cuts, copies, swaps and insertions."""
    for _ in range(rng.randint(1, 4)):
        start, end = sorted(rng.randint(0, len(text)) for _ in range(2))
        end = min(end, start + rng.choice([1, 5, 40]))
        piece = text[start:end]
        new = rng.choice(["", piece * 2, piece[::-1], rng.choice(FRAGMENTS), rng.choice(FRAGMENTS)])
        text = text[:start] + new + text[rng.choice([start, end]) :]
    return text


@pytest.mark.parametrize("seed", range(8))
def test_a_damaged_spec_is_read_or_refused(seed: int, n_cases: int) -> None:
    """Every problem has its address inside the file, and its caret below its line."""
    rng = random.Random(seed)
    n_refused = 0
    for _ in range(n_cases // 8):
        text = damage(rng.choice(SEEDLINGS), rng)
        try:
            parse_spec(text, "job.toml")
        except SpecError as error:
            n_refused += 1
            n_lines = text.count("\n") + 1
            for problem in error.problems:
                address = PROBLEM.fullmatch(problem)
                assert address, problem
                assert 1 <= int(address[1]) <= n_lines
    assert n_refused > n_cases // 16
