"""One run in a notebook: its series as labelled datasets, its energy, its wave function."""

from collections.abc import Mapping
from functools import cached_property
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vmcjob.columns import Column
from vmcjob.errors import NotFoundError, StoreError, UsageError
from vmcjob.results.frames import to_labelled, to_tree, to_walkers
from vmcjob.rundir import RunDir, select
from vmcjob.spec import JobSpec, load_resolved
from vmcjob.stats import Estimate, estimate
from vmcjob.store import RunStore
from vmcjob.store.layout import OBSERVED, SeriesName

if TYPE_CHECKING:
    from vmcjob.analysis.wavefunction import TrainedWaveFunction
    from vmcjob.results.frames import Dataset, DataTree


def open_run(path: str | Path, runs: str | Path = "runs") -> "Run":
    """A run by its directory or name, live, finished or archived; all that is committed by now.

    Args:
        path: the run directory, or, as on the command line, a run id or its beginning, the name of
            a spec or of a table's row, like "h2 R=1.4".
        runs: the root of the run directories, for a name.

    Raises NotFoundError where there is no run, UsageError where a name means several, StoreError
    where the run has no results yet.
    """
    run = RunDir(Path(path))
    if not run.exists and isinstance(path, str):
        found = select(Path(runs), [path])
        if len(found) > 1:
            names = ", ".join(one.path.name for one in found)
            raise UsageError(f"'{path}' names {len(found)} runs: {names}; name one")
        run = found[0]
    run = RunDir.open(run.path)
    return Run(run, RunStore.open(run.store_path, run_id=run.read_record().run_id))


def open_runs(pattern: str | Path = "runs/*") -> "list[Run]":
    """All runs whose directories match a glob and which have results, as a table has its rows.

    In the order of their names, then along the sweep, then by seed. Raises NotFoundError if no
    run matches.
    """
    found = [RunDir(Path(name)) for name in glob(str(pattern))]
    chosen = [run for run in found if run.exists and run.has_results]
    runs = [open_run(run.path) for run in sorted(chosen, key=_position)]
    if not runs:
        raise NotFoundError(f"{pattern}: matches no run that has results")
    return runs


def _position(run: RunDir) -> tuple[object, ...]:
    """Return the sort key of a run: numbers of a sweep in numeric order, before words."""
    record = run.read_record()
    point = [
        (True, 0.0, value) if isinstance(value, str) else (False, float(value), "")
        for value in record.point.values()
    ]
    return record.name, point, record.seed, record.run_id


class Run:
    """The results of one run. Datasets are read on first use and then kept."""

    def __init__(self, directory: RunDir, store: RunStore) -> None:
        """Use `open_run`."""
        self._directory, self._store = directory, store

    def __repr__(self) -> str:
        n = self._store.n_committed
        return f"<run {self.run_id}: {n['train']} training, {n['evaluate']} evaluation steps>"

    @property
    def path(self) -> Path:
        """The run directory."""
        return self._directory.path

    @property
    def run_id(self) -> str:
        """The run id: name and hash of all input that decides the numbers."""
        return self._store.attrs["run_id"]

    @cached_property
    def spec(self) -> JobSpec:
        """The resolved spec with the values of all keys."""
        return load_resolved(self._directory.read_spec_text(), str(self._directory.spec_path))

    @property
    def provenance(self) -> Mapping[str, Any]:  # JSON
        """Versions, devices, precision and image that produced the results."""
        return self._store.attrs["provenance"]

    @cached_property
    def train(self) -> "Dataset":
        """The training, step by step."""
        return self._series("train")

    @cached_property
    def evaluate(self) -> "Dataset":
        """The evaluation, step by step; the source of all results."""
        return self._series("evaluate")

    @cached_property
    def observed(self) -> "Dataset":
        """The measured observables; empty without observables."""
        rows = self._store.observed()
        columns = self._store.columns(OBSERVED) if rows else {}
        return to_labelled(columns, rows or {"step": []}, self._facts)  # pyright: ignore[reportArgumentType] -- no steps

    @cached_property
    def walkers(self) -> "Dataset":
        """Snapshots of all walkers during evaluation; r in bohr."""
        return to_walkers(*self._store.snapshots(), self.spec.system.n_up, self._facts)

    @property
    def tree(self) -> "DataTree":
        """All datasets of the run under one root."""
        groups = ("train", "evaluate", "observed", "walkers")
        return to_tree({name: getattr(self, name) for name in groups})

    @property
    def energy(self) -> Estimate:
        """Mean energy of the evaluation with its error, in hartree."""
        series = self._store.series("evaluate")
        return estimate(series["energy"], variance=series["variance"])

    def wave_function(self) -> "TrainedWaveFunction":
        """The wave function of the last commit; for a finished run, the evaluated one.

        Imports JAX. Raises StoreError if nothing is committed yet.
        """
        from vmcjob.analysis.wavefunction import restore

        found = self._store.checkpoint()
        if found is None:
            raise StoreError(f"{self.path}: there is no checkpoint yet")
        return restore(self.spec, found.checkpoint.arrays)

    def _series(self, phase: SeriesName) -> "Dataset":
        columns = dict(self._store.columns(phase))
        if "width" in columns and self.spec.sampler.proposal == "scaled":
            relative = "standard deviation of a proposed move, of the distance from the nuclei"
            columns["width"] = Column("1", relative)
        return to_labelled(columns, self._store.series(phase), self._facts)

    @property
    def _facts(self) -> dict[str, Any]:
        """Attributes of each dataset."""
        return {"run_id": self.run_id, "path": str(self.path)}
