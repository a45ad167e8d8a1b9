"""Runs that a longer training has replaced: the new run has the energy that counts."""

from collections.abc import Mapping


def replaced_by(
    continues: Mapping[str, str | None], trained_from: Mapping[str, str | None]
) -> dict[str, str]:
    """The replaced runs, by id, each with the run that has trained on.

    Evaluating a replaced run for longer gives a run that is replaced too.

    Args:
        continues: of each run, the run with fewer evaluation steps that this run contains.
        trained_from: of each run, the run whose training this run goes on with.
    """
    newer = {_first(origin, continues): run for run, origin in trained_from.items() if origin}
    firsts = {run: _first(run, continues) for run in continues}
    return {run: newer[first] for run, first in firsts.items() if first in newer}


def _first(run: str, continues: Mapping[str, str | None]) -> str:
    """The shortest of the runs that continue one another."""
    passed = {run}
    while (before := continues.get(run)) and before not in passed:
        passed.add(before)
        run = before
    return run
