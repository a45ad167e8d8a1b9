"""The table of energies, for runs that are selected as on the command line."""

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from vmcjob.errors import NotFoundError, RunDirError, UsageError, VmcJobError
from vmcjob.results.evaluation import Attempts, attempt_all, share_slopes
from vmcjob.results.table import RunResult, Table, make_table
from vmcjob.rundir import RunDir, select
from vmcjob.runs.ancestry import trained_from
from vmcjob.runs.status import RunStatus, rows
from vmcjob.spec import load_resolved, science_keys


def aggregate(
    *selectors: str,
    runs: str | Path = "runs",
    by: str | None = None,
    processes: int = 1,
    one_slope: bool = False,
) -> Table:
    """Energies of finished runs with error bars, pooled over seeds, as in `vmcjob aggregate`.

    Args:
        selectors: run ids or their beginnings, names of specs, run directories, globs or "@last";
            by
            default all runs.
        runs: the root of the run directories.
        by: a key that separates rows, see `table_of`.
        processes: number of processes that read stores, if reading takes more than two seconds.
        one_slope: extrapolate all runs of a sweep with one slope.

    Raises NotFoundError if there is no such run, RunDirError if a run's record is damaged.
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
    found: Sequence[RunStatus], by: str | None = None, attempts: Attempts = attempt_all
) -> Table:
    """The table of energies of runs whose states are known.

    `by` is "seed", a variable of a sweep, or a key of the spec such as "optimizer.kind". Each value
    of it gets its own rows and is shown in a column. Different calculations are never pooled, with
    or without `by`. Raises UsageError if no run has the key.
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
    """The results with the key `by` as their first coordinate."""
    known = [{"seed": one.seed} | dict(one.method) | dict(one.point) for one in results]
    if known and not any(by in facts for facts in known):
        keys = dict.fromkeys(key for facts in known for key in facts)
        homes = [key for key in keys if key.rpartition(".")[2] == by]
        near = homes if len(homes) == 1 else get_close_matches(by, keys, n=1)
        advice = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(keys)}"
        raise UsageError(f"--by: no run has the key '{by}'; {advice}")
    return [
        replace(
            one, point={by: facts.get(by, "")} | {k: v for k, v in one.point.items() if k != by}
        )
        for one, facts in zip(results, known, strict=True)
    ]


def _read_facts(run: RunDir) -> dict[str, Any]:
    """Facts from the run's spec: reference energy, method and number of walkers."""
    try:
        spec = load_resolved(run.read_spec_text(), str(run.spec_path))
    except VmcJobError as error:
        return {"unread": f"its spec cannot be read: {str(error).splitlines()[0]}"}
    return {
        "reference": spec.system.reference,
        "method": science_keys(spec),
        "n_walkers": spec.sampler.walkers,
        "spins": (spec.system.n_up, spec.system.n_down),
        "trained_from": trained_from(run),
    }
