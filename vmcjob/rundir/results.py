"""What a run's results say of themselves on a login node: read as files, without Zarr."""

from vmcjob.rundir.paths import RunPaths
from vmcjob.store import peek

RESULTS_LOST = "its results are missing or damaged; vmcjob rerun begins it anew"
SERIES = ("train", "evaluate")
RESULTS = ("energy", "variance")  # of every series; what a table is made of


class RunResults(RunPaths):
    """Whether there are results, whose they are, how long, and what of them is missing."""

    @property
    def has_results(self) -> bool:
        """Whether the store has its root; only the store itself can tell whether it is whole."""
        return peek.attributes(self.store_path) is not None

    @property
    def damage(self) -> str:
        """What is missing of the results of a finished run, so far as file names tell; or empty."""
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
        """Rows of each series in the results; empty where they do not say so."""
        found = (peek.attributes(self.store_path) or {}).get("n_committed")
        lengths = found if isinstance(found, dict) else {}
        return {phase: n for phase, n in lengths.items() if phase in SERIES and isinstance(n, int)}

    @property
    def is_trained_only(self) -> bool:
        """Whether its results have no room for an evaluation."""
        return self.n_committed.get("evaluate") == 0 and self.n_planned == 0

    @property
    def n_planned(self) -> int | None:
        """Evaluation steps that its results have room for; None before there are any."""
        return peek.n_rows(self.store_path, "evaluate/step")

    @property
    def n_due(self) -> int | None:
        """Evaluation steps that they are complete with: fewer than planned if these are enough.

        None before there are any results.
        """
        early = peek.ended_early(peek.attributes(self.store_path) or {})
        return early.get("evaluate", self.n_planned)

    def read_provenance(self) -> dict[str, object] | None:
        """What else decided the numbers, as the results say; None before there are any."""
        found = (peek.attributes(self.store_path) or {}).get("provenance")
        return found if isinstance(found, dict) else None

    @property
    def continues(self) -> str | None:
        """The run of fewer evaluation steps that it goes on from, None if there is no such run."""
        past = (self.read_provenance() or {}).get("continues")
        return str(past["run_id"]) if isinstance(past, dict) and "run_id" in past else None
