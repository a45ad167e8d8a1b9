"""What a run's results say of themselves on a login node: read as files, without Zarr."""

from vmcjob.rundir.files import read_text
from vmcjob.rundir.paths import RunPaths
from vmcjob.rundir.records import parse_object
from vmcjob.storefiles import missing_rows, n_rows

RESULTS_LOST = "its results are missing or damaged; vmcjob rerun begins it anew"
SERIES = ("train", "evaluate")
RESULTS = ("energy", "variance")  # of every series; what a table is made of


class RunResults(RunPaths):
    """Whether there are results, whose they are, how long, and what of them is missing."""

    @property
    def has_results(self) -> bool:
        """Whether the store has its root; only the store itself can tell whether it is whole."""
        return self._read_store() is not None

    @property
    def damage(self) -> str:
        """What is missing of the results of a finished run, so far as file names tell; or empty."""
        root = self._read_store()
        if root is None:
            return RESULTS_LOST
        lengths = self.n_committed
        names = [(phase, f"{phase}/{column}") for phase in lengths for column in RESULTS]
        missing = (missing_rows(self.store_path, name, lengths[phase]) for phase, name in names)
        return next(filter(None, missing), "")

    @property
    def n_committed(self) -> dict[str, int]:
        """Rows of each series in the results; empty where they do not say so."""
        attributes = (self._read_store() or {}).get("attributes")
        found = attributes.get("n_committed") if isinstance(attributes, dict) else None
        lengths = found if isinstance(found, dict) else {}
        return {phase: n for phase, n in lengths.items() if phase in SERIES and isinstance(n, int)}

    @property
    def is_trained_only(self) -> bool:
        """Whether its results have no room for an evaluation."""
        return self.n_committed.get("evaluate") == 0 and self.n_planned == 0

    @property
    def n_planned(self) -> int | None:
        """Evaluation steps that its results have room for; None before there are any."""
        return n_rows(self.store_path, "evaluate/step")

    def read_provenance(self) -> dict[str, object] | None:
        """What else decided the numbers, as the results say; None before there are any."""
        attributes = (self._read_store() or {}).get("attributes")
        found = attributes.get("provenance") if isinstance(attributes, dict) else None
        return found if isinstance(found, dict) else None

    @property
    def continues(self) -> str | None:
        """The run of fewer evaluation steps that it goes on from, None if there is no such run."""
        past = (self.read_provenance() or {}).get("continues")
        return str(past["run_id"]) if isinstance(past, dict) and "run_id" in past else None

    def _read_store(self) -> dict[str, object] | None:
        """The root of the results, which is JSON; None if there is none."""
        try:
            return parse_object(read_text(self.store_path / "zarr.json"))
        except (OSError, UnicodeDecodeError):
            return None
