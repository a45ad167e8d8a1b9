"""The content of a commit, and the rows of each array that it writes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vmcjob.store.arrays import Arrays
from vmcjob.store.layout import OBSERVED, SeriesName, common_length
from vmcjob.store.slot import Checkpoint


@dataclass(frozen=True, kw_only=True)
class Commit:
    """The content of one commit: rows of the two series, walker snapshots and the checkpoint."""

    checkpoint: Checkpoint
    train: Mapping[str, np.ndarray] | None = None
    evaluate: Mapping[str, np.ndarray] | None = None
    observed: Mapping[str, np.ndarray] | None = None  # at evaluation steps with an observation
    snapshots: Sequence[tuple[int, np.ndarray]] = ()  # (evaluate step, r[walker, electron, 3])


def rows_of(
    commit: Commit, arrays: Arrays, n_committed: Mapping[str, int]
) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """The rows of a commit by array path, and the committed lengths after the commit.

    ValueError if the rows do not continue the `n_committed` rows of this store.
    """
    rows: dict[str, np.ndarray] = {}
    lengths = dict(n_committed)
    series: dict[SeriesName, Mapping[str, np.ndarray] | None]
    series = {"train": commit.train, "evaluate": commit.evaluate}
    for phase, columns in series.items():
        if columns:
            rows |= _by_path(phase, columns, arrays)
            lengths[phase] += common_length(phase, columns)
    if every := arrays.observe_every:
        due = lengths["evaluate"] // every - n_committed["evaluate"] // every
        observed = commit.observed or {}
        if (common_length(OBSERVED, observed) if observed else 0) != due:
            step = lengths["evaluate"]
            raise ValueError(f"{due} observations are due at evaluate step {step}")
        rows |= _by_path(OBSERVED, observed, arrays) if observed else {}
    if commit.snapshots:
        steps, r = zip(*commit.snapshots, strict=True)
        rows |= {"walkers/step": np.asarray(steps), "walkers/r": np.stack(r)}
        lengths["snapshots"] += len(steps)
    planned = arrays.planned
    if beyond := [key for key, length in lengths.items() if length > planned[key]]:
        raise ValueError(f"commit beyond the planned length of {', '.join(beyond)}")
    return rows, lengths


def first_row(name: str, arrays: Arrays, n_committed: Mapping[str, int]) -> int:
    """The row of an array at which the next commit begins."""
    group = name.split("/")[0]
    if group == OBSERVED:
        return n_committed["evaluate"] // (arrays.observe_every or 1)
    return n_committed["snapshots" if group == "walkers" else group]


def _by_path(
    group: str, columns: Mapping[str, np.ndarray], arrays: Arrays
) -> dict[str, np.ndarray]:
    """Columns by the path of their array; columns that the store does not have are left out."""
    names = set(arrays.names(group)) - {"step"}
    if missing := names - columns.keys():
        raise ValueError(f"{group} rows lack {sorted(missing)}, columns of this store")
    return {f"{group}/{name}": columns[name] for name in columns if name in names}
