"""Make the store of a run that continues another run with a longer evaluation."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from vmcjob.errors import StoreError
from vmcjob.store.commit import Commit
from vmcjob.store.layout import ALWAYS_FINITE, OBSERVED, SERIES, Layout, SeriesName
from vmcjob.store.peek import LEVEL
from vmcjob.store.runstore import RunStore


def extend(
    shorter: RunStore,
    path: Path,
    *,
    run_id: str,
    spec_text: str,
    n_evaluate: int,
    n_snapshots: int,
) -> str | None:
    """Make a store at `path` with all results of the shorter run, to go on from its checkpoint.

    It equals the store of a long run at this point, with two differences. The provenance names the
    shorter run under "continues", and `n_snapshots` further snapshots are added to the copied ones.

    Returns a warning if the checkpoint is not the newest. Raises StoreError if the shorter run has
    no checkpoint or has lost rows.
    """
    restored = shorter.checkpoint()
    if restored is None:
        raise StoreError(f"{shorter.path}: there is no checkpoint to continue from")
    checkpoint = restored.checkpoint
    if shorter.n_planned["evaluate"] == 0:  # the walkers are not equilibrated yet
        checkpoint = replace(checkpoint, phase="train", step=shorter.n_due["train"])
    train, evaluate = _rows(shorter, "train"), _rows(shorter, "evaluate")
    steps, r = shorter.snapshots()
    store = RunStore.create(
        path,
        run_id=run_id,
        spec_text=spec_text,
        provenance=shorter.attrs["provenance"] | {"continues": _past(shorter)},
        layout=_layout(shorter, r, n_evaluate, len(steps) + n_snapshots),
        hartree_fock=shorter.hartree_fock(),
        ansatz_version=shorter.attrs.get("ansatz_version", 1),
    )
    _copy_records(shorter, store)
    store.commit(
        Commit(
            checkpoint=checkpoint,
            train=train,
            evaluate=evaluate,
            observed={name: rows for name, rows in shorter.observed().items() if name != "step"},
            snapshots=list(zip(steps, r, strict=True)),
        )
    )
    return restored.warning


def _past(store: RunStore) -> dict[str, Any]:  # JSON
    """The record of the shorter run in the provenance of the longer run."""
    n_committed = store.n_committed
    return {
        "run_id": store.attrs["run_id"],
        "step": n_committed["evaluate"],
        "snapshots": n_committed["snapshots"],
    }


def _copy_records(shorter: RunStore, store: RunStore) -> None:
    """Copy the end of the training, the choice of parameters and the rollbacks."""
    for name in (LEVEL, "evaluated"):
        if name in shorter.attrs:
            store.record(name, shorter.attrs[name])
    for record in shorter.rollbacks:
        store.record_rollback(record)


def _layout(store: RunStore, r: np.ndarray, n_evaluate: int, n_snapshots: int) -> Layout:
    """The layout of a store with a longer evaluation; `r` has the snapshots so far."""
    train = store.columns("train")
    return Layout(
        n_train=store.n_planned["train"],
        n_evaluate=n_evaluate,
        n_walkers=r.shape[1],
        n_electrons=r.shape[2],
        n_snapshots=n_snapshots,
        dtype=str(r.dtype),
        more_train={name: train[name] for name in train if name not in SERIES["train"]},
        observed=store.columns(OBSERVED) if store.observe_every else {},
        observe_every=store.observe_every or 1,
    )


def _rows(store: RunStore, phase: SeriesName) -> dict[str, np.ndarray]:
    """The committed rows of one series, as input of a commit; StoreError if rows are lost."""
    series = store.series(phase)
    nothing = np.full(len(series["step"]), np.nan)  # for a column that older stores do not have
    names = dict.fromkeys([*SERIES[phase], *series])
    rows = {name: series.get(name, nothing) for name in names if name != "step"}
    for name in ALWAYS_FINITE:
        if np.isnan(series[name]).any():  # Zarr reads a missing chunk as NaN
            raise StoreError(f"{store.path}: {phase}/{name} has lost rows")
    return rows
