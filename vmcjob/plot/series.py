"""The series from which pictures of a run are drawn."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vmcjob.store import RunStore


@dataclass(frozen=True)
class RunSeries:
    """The committed series of one run, by column; energies in hartree."""

    label: str
    train: Mapping[str, np.ndarray]  # each of shape (step,)
    evaluate: Mapping[str, np.ndarray]
    reference: float | None = None  # hartree
    hartree_fock: float | None = None  # hartree
    is_width_relative: bool = False  # of a move: to the electron's distance, or in bohr


def read(path: Path, run_id: str, label: str, reference: float | None = None) -> RunSeries:
    """The series in a run's store; StoreError if it cannot be read."""
    store = RunStore.open(path, run_id=run_id)
    start = store.hartree_fock()
    return RunSeries(
        label=label,
        train=store.series("train"),
        evaluate=store.series("evaluate"),
        reference=reference,
        hartree_fock=start.attributes["energy"] if start else None,
    )
