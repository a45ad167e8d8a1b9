"""Facts about a run's results for login nodes, read from files without Zarr."""

from vmcjob.rundir.paths import RunPaths
from vmcjob.store import peek

RESULTS_LOST = "its results are missing or damaged; vmcjob rerun begins it anew"
SERIES = ("train", "evaluate")
RESULTS = ("energy", "variance")  # columns of every series that the table needs


class RunResults(RunPaths):
    """Existence, origin, lengths and damage of a run's results."""

    @property
    def has_results(self) -> bool:
        """Whether the store's root is readable; only the store itself can verify the rest."""
        return peek.attributes(self.store_path) is not None

    @property
    def damage(self) -> str:
        """Lost files of a finished run's results, in words, as far as file names tell, or empty."""
        if not self.has_results:
            return RESULTS_LOST
        lengths = self.n_committed
        names = [(phase, f"{phase}/{column}") for phase in lengths for column in RESULTS]
        missing = (
            peek.missing_rows(self.store_path, name, lengths[phase]) for phase, name in names
        )
        return next(filter(None, missing), "")

    @property
    def n_committed(self) -> dict[str, int]:
        """Committed rows of each series; empty if unknown."""
        found = (peek.attributes(self.store_path) or {}).get("n_committed")
        lengths = found if isinstance(found, dict) else {}
        return {phase: n for phase, n in lengths.items() if phase in SERIES and isinstance(n, int)}

    @property
    def is_trained_only(self) -> bool:
        """Whether the results have no room for an evaluation."""
        return self.n_committed.get("evaluate") == 0 and self.n_planned == 0

    @property
    def n_planned(self) -> int | None:
        """Planned evaluation steps; None without results."""
        return peek.n_rows(self.store_path, "evaluate/step")

    @property
    def n_due(self) -> int | None:
        """Evaluation steps of the complete run; fewer than planned if a target was reached earlier.

        None without results.
        """
        early = peek.ended_early(peek.attributes(self.store_path) or {})
        return early.get("evaluate", self.n_planned)

    def read_provenance(self) -> dict[str, object] | None:
        """The provenance in the results; None without results."""
        found = (peek.attributes(self.store_path) or {}).get("provenance")
        return found if isinstance(found, dict) else None

    @property
    def continues(self) -> str | None:
        """Id of the run with fewer evaluation steps that this run continues; None without one."""
        past = (self.read_provenance() or {}).get("continues")
        return str(past["run_id"]) if isinstance(past, dict) and "run_id" in past else None
