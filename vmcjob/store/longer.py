"""The store of a run that goes on from another: the same calculation with a longer evaluation."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from vmcjob.errors import StoreError
from vmcjob.store.commit import Commit
from vmcjob.store.layout import ALWAYS_FINITE, OBSERVED, SERIES, Layout, Phase
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
    """Make a store at `path` with all that the shorter run has, to go on from its checkpoint.

    A longer run's own store would hold the same at this point, but for the provenance, which names
    the shorter run under "continues", and for the snapshots: `n_snapshots` will join those there.
    Returns what to know if the checkpoint is not the newest. Raises StoreError if the shorter run
    has no checkpoint, or has lost rows.
    """
    restored = shorter.checkpoint()
    if restored is None:
        raise StoreError(f"{shorter.path}: there is no checkpoint to go on from")
    checkpoint = restored.checkpoint
    if shorter.n_planned["evaluate"] == 0:  # nobody has equilibrated the walkers yet
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
    """What a longer run says of the run that it goes on from."""
    n_committed = store.n_committed
    return {
        "run_id": store.attrs["run_id"],
        "step": n_committed["evaluate"],
        "snapshots": n_committed["snapshots"],
    }


def _copy_records(shorter: RunStore, store: RunStore) -> None:
    """How the training ended, which parameters were chosen, and what had to be rolled back."""
    for name in (LEVEL, "evaluated"):
        if name in shorter.attrs:
            store.record(name, shorter.attrs[name])
    for record in shorter.rollbacks:
        store.record_rollback(record)


def _layout(store: RunStore, r: np.ndarray, n_evaluate: int, n_snapshots: int) -> Layout:
    """That of a store with a longer evaluation; `r` are its snapshots so far."""
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


def _rows(store: RunStore, phase: Phase) -> dict[str, np.ndarray]:
    """The committed rows of one series as a commit takes them; StoreError if some are lost."""
    series = store.series(phase)
    nothing = np.full(len(series["step"]), np.nan)  # in a column that came later
    names = dict.fromkeys([*SERIES[phase], *series])
    rows = {name: series.get(name, nothing) for name in names if name != "step"}
    for name in ALWAYS_FINITE:
        if np.isnan(series[name]).any():  # as Zarr reads a chunk that is not there
            raise StoreError(f"{store.path}: {phase}/{name} has lost rows")
    return rows
