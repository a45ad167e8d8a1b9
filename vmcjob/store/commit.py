"""What a commit adds to a store, and which rows of which arrays that means."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vmcjob.store.arrays import Arrays
from vmcjob.store.layout import OBSERVED, Phase, common_length
from vmcjob.store.slot import Checkpoint


@dataclass(frozen=True, kw_only=True)
class Commit:
    """What one commit adds: rows of the two series, walker snapshots, and where to go on from."""

    checkpoint: Checkpoint
    train: Mapping[str, np.ndarray] | None = None
    evaluate: Mapping[str, np.ndarray] | None = None
    observed: Mapping[str, np.ndarray] | None = None  # of those steps of evaluation that are due
    snapshots: Sequence[tuple[int, np.ndarray]] = ()  # (evaluate step, r[walker, electron, 3])


def rows_of(
    commit: Commit, arrays: Arrays, n_committed: Mapping[str, int]
) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """The rows of a commit by the path of their array, and the lengths that they lead to.

    ValueError if they are not those that this store wants after the `n_committed` there are.
    """
    rows: dict[str, np.ndarray] = {}
    lengths = dict(n_committed)
    series: dict[Phase, Mapping[str, np.ndarray] | None]
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
    """The row of an array that the next commit begins with."""
    group = name.split("/")[0]
    if group == OBSERVED:
        return n_committed["evaluate"] // (arrays.observe_every or 1)
    return n_committed["snapshots" if group == "walkers" else group]


def _by_path(
    group: str, columns: Mapping[str, np.ndarray], arrays: Arrays
) -> dict[str, np.ndarray]:
    """Columns under the paths of their arrays, but those for which this store has none."""
    names = set(arrays.names(group)) - {"step"}
    if missing := names - columns.keys():
        raise ValueError(f"{group} rows lack {sorted(missing)}, which the store has")
    return {f"{group}/{name}": columns[name] for name in columns if name in names}
