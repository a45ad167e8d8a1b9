"""One run in a notebook: its series as labelled datasets, its energy, its wave function."""

from collections.abc import Mapping
from functools import cached_property
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vmcjob.errors import NotFoundError, StoreError
from vmcjob.frames import to_labelled, to_tree, to_walkers
from vmcjob.rundir import RunDir
from vmcjob.spec import JobSpec, load_resolved
from vmcjob.stats import Estimate, estimate
from vmcjob.store import RunStore
from vmcjob.store.layout import OBSERVED, Phase

if TYPE_CHECKING:
    from vmcjob.analysis.wavefunction import TrainedWaveFunction
    from vmcjob.frames import Dataset, DataTree


def open_run(path: str | Path) -> "Run":
    """Open a run by its directory, whether live, finished or archived; shows the committed state.

    Raises NotFoundError if there is no run, StoreError if it has no results yet.
    """
    run = RunDir.open(Path(path))
    return Run(run, RunStore.open(run.store_path, run_id=run.read_record().run_id))


def open_runs(pattern: str | Path = "runs/*") -> "list[Run]":
    """Open all runs with results whose directories match a glob, sorted by name.

    Raises NotFoundError if no run with results matches.
    """
    found = [Path(name) for name in sorted(glob(str(pattern))) if RunDir(Path(name)).exists]
    runs = [open_run(path) for path in found if RunDir(path).has_results]
    if not runs:
        raise NotFoundError(f"{pattern}: matches no run that has results")
    return runs


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

    def _series(self, phase: Phase) -> "Dataset":
        return to_labelled(self._store.columns(phase), self._store.series(phase), self._facts)

    @property
    def _facts(self) -> dict[str, Any]:
        """Attributes of each dataset."""
        return {"run_id": self.run_id, "path": str(self.path)}
