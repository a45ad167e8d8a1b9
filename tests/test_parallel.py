"""A function of many things in several processes: in order, complete, and soon over."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any  # results of any function

import pytest

from tests.runs import wait_until
from vmcjob.results.parallel import ALONE_S, Killed, compute

ROOT = Path(__file__).parents[1]


def results(
    function: Callable[[Any], Any], items: Sequence[Any], n: int, alone_s: float = 0.0
) -> list[Any]:
    return list(compute(function, items, n, alone_s))


def square(x: int) -> tuple[int, int]:
    """And who computed it; says something, which must not get among the answers."""
    sys.stdout.write(f"squaring {x}\n")
    sys.stdout.flush()
    return x * x, os.getpid()


def die_at_seven(x: int) -> int:
    """As where memory is short."""
    if x == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def fail_at_seven(x: int) -> int:
    """As a function with a mistake."""
    if x == 7:
        raise MemoryError("seven")
    return x


def take_long(path: Path | None) -> None:
    """Leave a file with the process's id, and do not end; without a path, do nothing."""
    if path is not None:
        path.write_text(str(os.getpid()))
        time.sleep(600.0)


@pytest.mark.parametrize("n_processes", [1, 2, 20])
def test_results_come_in_order_whoever_computes_them(n_processes: int) -> None:
    found = results(square, range(5), n_processes)
    assert [one for one, _ in found] == [0, 1, 4, 9, 16]
    assert len({pid for _, pid in found}) == min(n_processes, 5)


def test_what_is_soon_done_needs_no_other_process() -> None:
    assert {pid for _, pid in results(square, range(8), 2, ALONE_S)} == {os.getpid()}


def test_nothing_to_do_is_no_result() -> None:
    assert results(square, [], 4) == []


def test_whoever_is_killed_over_an_item_costs_that_item_alone() -> None:
    """Of 12 items the other process has those that are odd."""
    found = results(die_at_seven, range(12), 2)
    assert found == [*range(7), Killed(signal.SIGKILL), *range(8, 12)]


def test_a_mistake_is_raised_here_with_its_place_there() -> None:
    """In its own type: of memory that ran out, say, the user is told in a sentence."""
    with pytest.raises(MemoryError) as caught:
        results(fail_at_seven, range(12), 2)
    assert "in fail_at_seven" in caught.value.__notes__[0]


def test_ctrl_c_ends_all_at_once(tmp_path: Path) -> None:
    """Whoever asks for results is interrupted while the other process is at work."""
    path = tmp_path / "pid"
    program = (
        "import pathlib, sys; from tests.test_parallel import results, take_long;"
        "results(take_long, [None, pathlib.Path(sys.argv[1])], 2)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], cwd=ROOT, stderr=subprocess.PIPE, text=True
    ) as asking:
        wait_until(lambda: path.exists() and path.read_text(), "the other process is at work")
        asking.send_signal(signal.SIGINT)
        _, errors = asking.communicate(timeout=20.0)
    assert errors.splitlines()[-1] == "KeyboardInterrupt"
    with pytest.raises(ProcessLookupError):
        os.kill(int(path.read_text()), 0)
