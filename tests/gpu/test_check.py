"""The check of a GPU, on a CPU: its order, its clock, its files and its tables."""

import json
import sys
import time
from collections.abc import Mapping

import jax
import pytest

from tests.gpu import part as one_part
from tests.gpu.check import LEFT, PARTS, REPOSITORY, Part, check, start_process
from tests.gpu.tables import read, render

A_MINUTE = 60.0


def test_parts_come_in_order_and_what_is_left_is_named_with_its_reason(tmp_path):
    """One part that fails must not end the others, nor one that needs too long be begun."""
    parts = [Part("first", ""), Part("broken", ""), Part("long", "", (), 2 * A_MINUTE)]
    asked: list[str] = []

    def start(part, out, limit_s):
        del out
        asked.append(part.name)
        assert 0 < limit_s <= A_MINUTE
        return "failed: no memory" if part.name == "broken" else ""

    left = check([*parts, Part("last", "")], tmp_path, A_MINUTE, start)
    assert asked == ["first", "broken", "last"]
    assert left.keys() == {"broken", "long"}
    assert left["long"].startswith("not begun: ")
    assert json.loads((tmp_path / LEFT).read_text()) == left


def test_a_part_that_takes_too_long_is_ended_with_what_it_has_started(tmp_path, monkeypatch):
    """A worker that went on would slow all parts after it."""
    child = tmp_path / "child"
    script = tmp_path / "slow"
    script.write_text(f"#!/bin/sh\nsleep 600 & echo $! >{child}\nwait\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    assert start_process(Part("slow", "x"), tmp_path, 1.0, is_tiny=True).startswith("not done")
    stat = f"/proc/{child.read_text().strip()}/stat"
    deadline = time.monotonic() + A_MINUTE
    while time.monotonic() < deadline:
        try:
            with open(stat) as file:
                if file.read().split()[2] == "Z":
                    return
        except FileNotFoundError:
            return
        time.sleep(0.01)
    raise AssertionError("what the part has started still runs")


def test_a_part_that_fails_says_why(tmp_path):
    reason = start_process(Part("odd", "no.such"), tmp_path, A_MINUTE, is_tiny=True)
    assert reason.startswith("failed: ")
    assert "invalid choice: 'no.such'" in reason


def test_every_part_names_a_function_and_a_file_of_its_own():
    assert {part.function for part in PARTS} == one_part.FUNCTIONS.keys()
    assert len({part.name for part in PARTS}) == len(PARTS)
    assert (REPOSITORY / "tests" / "gpu" / "check.py").is_file()


def document(part: str, arguments: list[str], found: Mapping[str, object]) -> dict[str, object]:
    card = {"card": "NVIDIA H100 80GB HBM3", "versions": {"jax": "0.10.2"}}
    return {"part": part, "arguments": arguments, "is_tiny": False, "found": found} | card


def test_tables_give_shares_of_the_peak_memory_and_refusals():
    """A share belongs to the operations of the same molecule and optimizer, and to its card."""
    measured = {"walkers": 4096, "first_call_s": 61.0, "step_s": 0.1, "peak_bytes": 3 * 2**30}
    account = {"operations": 3.35e12, "given_bytes": 2**20, "temporary_bytes": 2**21}
    energy = {"energy": -1.1744, "error": 1e-5, "verdict": "converged", "reference": -1.174476}
    documents = {
        "h2": document("jobs.energy", ["h2"], energy | {"seconds": 12.0}),
        "a": document("measure.step", ["n2", "spring"], measured),
        "b": document("measure.step", ["n2", "kfac"], {"refused": "needs JAX below 0.11"}),
        "c": document("measure.account", ["n2", "spring"], account),
        "d": document("measure.laplacian", ["ferminet"], {"electrons": 10, "ms": {"vmcjob": 2.0}}),
    }
    lines = render(documents, {"resume": "not begun: 3 s were left"}).splitlines()
    assert lines[0] == "NVIDIA H100 80GB HBM3; jax 0.10.2."
    assert "| h2 | -1.174400(10) | 0.076(10) | converged | 12 |" in lines
    assert "| n2 | spring | 4096 | 100.0 | 0.50 | 61 | 3072 | 3 |" in lines
    assert "| n2 | kfac | needs JAX below 0.11 |  |  |  |  |  |" in lines
    assert "| ferminet | 10 | vmcjob | 2.00 | 1.00 |" in lines
    assert lines[-1] == "- `resume`: not begun: 3 s were left"
    elsewhere = {"a": documents["a"] | {"card": "cpu"}, "c": documents["c"]}
    assert "| n2 | spring | 4096 | 100.0 | not known | 61 | 3072 | 3 |" in render(elsewhere, {})


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("measure.step", "lih", "adam"),
        pytest.param(("jobs.resume",), marks=pytest.mark.full_matrix),
        pytest.param(("measure.step", "lih", "spring"), marks=pytest.mark.full_matrix),
        pytest.param(("measure.account", "lih", "kfac"), marks=pytest.mark.full_matrix),
        pytest.param(("measure.laplacian", "ferminet"), marks=pytest.mark.full_matrix),
        pytest.param(("jobs.energy", "h2"), marks=pytest.mark.full_matrix),
        pytest.param(("jobs.shared",), marks=pytest.mark.full_matrix),
    ],
    ids=" ".join,
)
def test_a_tiny_part_runs_to_its_end_and_its_file_makes_a_table(words, tmp_path):
    """A part that cannot run would be found only on a GPU, which is dear."""
    part = Part("part", words[0], words[1:])
    assert start_process(part, tmp_path, 4 * A_MINUTE, is_tiny=True) == ""
    document = json.loads((tmp_path / "part.json").read_text())
    assert document["card"] == jax.devices()[0].device_kind
    assert document["versions"]["jax"] == jax.__version__
    assert "Everything was tiny" in render(read(tmp_path), {})
