"""The table of energies of runs that are chosen as on the command line."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vmcjob.errors import NotFoundError, RunDirError, VmcJobError
from vmcjob.rundir import RunDir, select
from vmcjob.spec import load_resolved, science_keys
from vmcjob.status import Row, rows
from vmcjob.table import RunResult, Table, make_table


def aggregate(*selectors: str, runs: str | Path = "runs") -> Table:
    """Energies of finished runs with error bars, pooled over seeds; the table of `aggregate`.

    Args:
        selectors: run ids or their beginnings, names of specs, run directories, globs or "@last";
            all runs without.
        runs: the root of the run directories.

    Raises NotFoundError where there is no such run, RunDirError where a run's record is damaged.
    """
    root = Path(runs)
    if not root.is_dir():
        raise NotFoundError(f"{root}: there is no such directory")
    found, errors = rows(select(root, selectors))
    if errors:
        raise RunDirError("\n".join(map(str, errors)))
    return table_of(found)


def table_of(found: Sequence[Row]) -> Table:
    """The table of energies of runs whose states are known."""
    return make_table(
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
    )


def _read_facts(run: RunDir) -> dict[str, Any]:
    """What the run's spec says beside its numbers: the energy to compare with, and the method."""
    try:
        spec = load_resolved(run.read_spec_text(), str(run.spec_path))
    except VmcJobError:
        return {}  # an unreadable spec does not make the results worse
    return {"reference": spec.system.reference, "method": science_keys(spec)}
