"""A store says itself what it holds: columns of any shape, of any release."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from vmcjob.columns import Axis, Column
from vmcjob.errors import StoreError
from vmcjob.store import Checkpoint, Commit, Layout, RunStore, extend
from vmcjob.store.layout import SERIES

PAIR = Column("bohr^-3", "a histogram", (Axis("bin", 4, "bohr", (0.0, 1.0, 2.0)),))
PLAIN = Column("1", "a number")
DAMPING = Column("1", "damping")
EVERY = 3


def create(path: Path, n_evaluate: int = 10) -> RunStore:
    """A store whose optimizer tells its damping, and whose evaluation observes two things."""
    layout = Layout(
        n_train=2,
        n_evaluate=n_evaluate,
        n_walkers=4,
        n_electrons=1,
        n_snapshots=0,
        more_train={"damping": DAMPING},
        observed={"pair": PAIR, "plain": PLAIN},
        observe_every=EVERY,
    )
    return RunStore.create(path, run_id="x-1", spec_text="", provenance={}, layout=layout)


def evaluate_rows(first: int, last: int) -> dict[str, np.ndarray]:
    return {name: np.arange(first, last, dtype=float) for name in SERIES["evaluate"]}


def observed_rows(first: int, last: int) -> dict[str, np.ndarray]:
    """Of the observations `first` to `last` − 1."""
    plain = np.arange(first, last, dtype=float)
    return {"pair": plain[:, None] + np.arange(4), "plain": plain}


def filled(path: Path) -> RunStore:
    """Ten steps of evaluation in two commits, that fall between observations."""
    store = create(path)
    train = {name: np.ones(2) for name in (*SERIES["train"], "damping")}
    ends = Checkpoint("evaluate", 4, {}), Checkpoint("evaluate", 10, {})
    store.commit(
        Commit(
            checkpoint=ends[0],
            train=train,
            evaluate=evaluate_rows(0, 4),
            observed=observed_rows(0, 1),
        )
    )
    store.commit(
        Commit(checkpoint=ends[1], evaluate=evaluate_rows(4, 10), observed=observed_rows(1, 3))
    )
    return store


def test_columns_of_any_shape_come_back_with_their_meaning(tmp_path: Path) -> None:
    """Every third step of ten: three rows, whatever the commits; their meaning beside them."""
    filled(tmp_path / "run.zarr")
    store = RunStore.open(tmp_path / "run.zarr")
    assert store.columns("observe") == {"pair": PAIR, "plain": PLAIN}
    assert store.columns("train")["damping"] == DAMPING
    found = store.observed()
    np.testing.assert_array_equal(found["step"], [3, 6, 9])
    for name, values in observed_rows(0, 3).items():
        np.testing.assert_array_equal(found[name], values)


def test_a_longer_store_keeps_them(tmp_path: Path) -> None:
    """`resume --more-steps` goes on from a copy."""
    extend(
        filled(tmp_path / "run.zarr"),
        tmp_path / "longer.zarr",
        run_id="x-2",
        spec_text="",
        n_evaluate=20,
        n_snapshots=0,
    )
    store = RunStore.open(tmp_path / "longer.zarr", "a")
    assert store.columns("observe") == {"pair": PAIR, "plain": PLAIN}
    store.commit(
        Commit(
            checkpoint=Checkpoint("evaluate", 12, {}),
            evaluate=evaluate_rows(10, 12),
            observed=observed_rows(3, 4),
        )
    )
    found = store.observed()
    np.testing.assert_array_equal(found["step"], [3, 6, 9, 12])
    np.testing.assert_array_equal(found["plain"], [0, 1, 2, 3])


def test_a_column_that_is_not_there_is_missing(tmp_path: Path) -> None:
    """No error, and no column of NaN: a store of before had never heard of it."""
    store = filled(tmp_path / "run.zarr")
    for path in sorted((tmp_path / "run.zarr" / "train" / "median").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    reader = RunStore.open(store.path)
    assert "median" not in reader.series("train")
    assert "ess" in reader.series("train")


def test_columns_that_a_store_has_never_heard_of_are_left_out(tmp_path: Path) -> None:
    """A run of before goes on, its optimizer tells more now, and old rows would have nothing."""
    store = create(tmp_path / "run.zarr")
    train = {name: np.ones(2) for name in (*SERIES["train"], "damping", "later")}
    store.commit(Commit(checkpoint=Checkpoint("train", 2, {}), train=train))
    assert "later" not in RunStore.open(store.path).series("train")
    np.testing.assert_array_equal(store.series("train")["damping"], 1.0)


def test_rows_that_a_store_waits_for_must_come(tmp_path: Path) -> None:
    """A column left out, and an observation that is due, would be NaN for ever."""
    store = create(tmp_path / "run.zarr")
    rows = evaluate_rows(0, 4)
    with pytest.raises(ValueError, match="1 observations are due at evaluate step 4"):
        store.commit(
            Commit(
                checkpoint=Checkpoint("evaluate", 4, {}),
                evaluate=rows,
                observed=observed_rows(0, 2),
            )
        )
    del rows["energy"]
    with pytest.raises(ValueError, match="evaluate rows lack \\['energy'\\]"):
        store.commit(Commit(checkpoint=Checkpoint("evaluate", 4, {}), evaluate=rows))


def test_a_column_that_a_store_of_before_lacks_is_left_out(tmp_path: Path) -> None:
    """Of those that are asked for; what every store has may not be missing."""
    filled(tmp_path / "run.zarr")
    shutil.rmtree(tmp_path / "run.zarr" / "evaluate" / "max_age")
    store = RunStore.open(tmp_path / "run.zarr")
    assert store.series("evaluate", ("energy", "max_age")).keys() == {"energy"}
    assert store.series("evaluate", ("max_age",)) == {}
    assert store.series("train", ("max_age",)).keys() == {"max_age"}
    shutil.rmtree(tmp_path / "run.zarr" / "evaluate" / "variance")
    with pytest.raises(StoreError, match="variance"):
        RunStore.open(tmp_path / "run.zarr").series("evaluate", ("energy", "variance"))


def test_a_longer_store_lacks_a_column_of_later_in_its_first_rows(tmp_path: Path) -> None:
    """A chunk of a column that came later has no file, and its rows are not lost.

    Catches a table that asks for them, and advises to restore the run from a copy.
    """
    n_old, n = 4096, 5000  # a chunk
    store = create(tmp_path / "run.zarr", n_old)
    shutil.rmtree(tmp_path / "run.zarr" / "evaluate" / "max_age")
    store = RunStore.open(tmp_path / "run.zarr", "a")
    old, new = evaluate_rows(0, n_old), evaluate_rows(n_old, n)
    del old["max_age"]
    train = {name: np.ones(2) for name in (*SERIES["train"], "damping")}
    observed = observed_rows(0, n_old // EVERY)
    end = Checkpoint("evaluate", n_old, {})
    store.commit(Commit(checkpoint=end, train=train, evaluate=old, observed=observed))
    names = {"run_id": "x-2", "spec_text": "", "n_evaluate": n, "n_snapshots": 0}
    extend(store, tmp_path / "longer.zarr", **names)
    longer = RunStore.open(tmp_path / "longer.zarr", "a")
    observed = observed_rows(n_old // EVERY, n // EVERY)
    longer.commit(Commit(checkpoint=Checkpoint("evaluate", n, {}), evaluate=new, observed=observed))
    series = RunStore.open(tmp_path / "longer.zarr").series("evaluate", ("energy", "max_age"))
    np.testing.assert_array_equal(series["energy"], np.arange(n))
    assert np.isnan(series["max_age"][:n_old]).all()
    assert series["max_age"][-1] == n - 1
