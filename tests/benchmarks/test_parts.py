"""Timing parts of a step: turns, and which of them count."""

import time

from tests.benchmarks.parts import MIN_TURNS, fastest


def test_the_fastest_turn_counts_and_the_first_one_does_not() -> None:
    """It compiles, and here it would be the fastest."""
    waits_s = iter([0.0, 0.05, 0.02, 0.05])
    order = []

    def one() -> None:
        order.append("one")
        time.sleep(next(waits_s))

    seconds = fastest({"one": one, "other": lambda: order.append("other")}, 3)
    assert 0.02 <= seconds["one"] < 0.05
    assert order == ["one", "other"] * 4


def test_a_limit_ends_the_turns_but_for_a_few() -> None:
    calls = []
    fastest({"one": lambda: calls.append(None)}, 100, limit_s=0.0)
    assert len(calls) == 1 + MIN_TURNS
