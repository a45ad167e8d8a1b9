"""The table of energies of runs that are chosen as on the command line."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from vmcjob.errors import NotFoundError, RunDirError, UsageError, VmcJobError
from vmcjob.evaluation import Attempts, attempt_all, share_slopes
from vmcjob.rundir import RunDir, select
from vmcjob.spec import load_resolved, science_keys
from vmcjob.status import Row, rows
from vmcjob.table import RunResult, Table, make_table


def aggregate(
    *selectors: str,
    runs: str | Path = "runs",
    by: str | None = None,
    processes: int = 1,
    one_slope: bool = False,
) -> Table:
    """Energies of finished runs with error bars, pooled over seeds; the table of `aggregate`.

    Args:
        selectors: run ids or their beginnings, names of specs, run directories, globs or "@last";
            all runs without.
        runs: the root of the run directories.
        by: a key that tells rows apart, as in `table_of`.
        processes: how many read stores at once, where it takes more than two seconds.
        one_slope: extrapolate all runs of a sweep by one slope.

    Raises NotFoundError where there is no such run, RunDirError where a run's record is damaged.
    """
    root = Path(runs)
    if not root.is_dir():
        raise NotFoundError(f"{root}: there is no such directory")
    found, errors = rows(select(root, selectors))
    if errors:
        raise RunDirError("\n".join(map(str, errors)))
    attempts = partial(attempt_all, n_processes=processes)
    return table_of(found, by, share_slopes(attempts) if one_slope else attempts)


def table_of(
    found: Sequence[Row], by: str | None = None, attempts: Attempts = attempt_all
) -> Table:
    """The table of energies of runs whose states are known.

    With `by`, "seed", a variable of a sweep or a key of the spec, like "optimizer.kind", every
    value of it has rows of its own, in their order; it becomes a column. What is not the same
    calculation is never pooled anyway. Raises UsageError where no run has the key.
    """
    results = [
        RunResult(
            run_id=row.run_id,
            name=row.name,
            point=row.point,
            seed=row.seed,
            science_sha256=row.science_sha256,
            state=row.state,
            store_path=row.run.store_path,
            **_read_facts(row.run),
        )
        for row in found
    ]
    return make_table(results if by is None else _tell_apart(results, by), attempts)


def _tell_apart(results: Sequence[RunResult], by: str) -> list[RunResult]:
    """The same with a key among their coordinates, the first."""
    known = [{"seed": one.seed} | dict(one.method) | dict(one.point) for one in results]
    if known and not any(by in facts for facts in known):
        examples = ", ".join(dict.fromkeys(key for facts in known for key in facts))
        raise UsageError(f"--by: no run has the key '{by}'; there are {examples}")
    return [
        replace(
            one, point={by: facts.get(by, "")} | {k: v for k, v in one.point.items() if k != by}
        )
        for one, facts in zip(results, known, strict=True)
    ]


def _read_facts(run: RunDir) -> dict[str, Any]:
    """What the run's spec says beside its numbers: the energy to compare with, and the method."""
    try:
        spec = load_resolved(run.read_spec_text(), str(run.spec_path))
    except VmcJobError:
        return {}  # an unreadable spec does not make the results worse
    return {
        "reference": spec.system.reference,
        "method": science_keys(spec),
        "n_walkers": spec.sampler.walkers,
    }
