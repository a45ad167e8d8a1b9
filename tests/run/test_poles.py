"""Checkpoints of before, whose Jastrow factors could have poles."""

from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
import zarr

from tests.run.harness import HELIUM, finish, make_run, start
from vmcjob.errors import StoreError
from vmcjob.run.poles import ANSATZ_VERSION, refuse_poles
from vmcjob.rundir import RunDir
from vmcjob.store import Checkpoint, Commit, RunStore

ALPHA = "params/params/jastrow/alpha"
SENTENCE = (
    "checkpoint of a wave function with a pole: the Jastrow factor's length "
    f"{ALPHA} is -0.743 bohr, expected more than 0; begin anew: vmcjob rerun"
)


def test_a_pole_is_refused_with_its_cure() -> None:
    """-alpha^2 / (alpha + r) has one at 0.743 bohr, and walkers are in it."""
    with pytest.raises(StoreError) as raised:
        refuse_poles({ALPHA: np.array([-0.743, 1.2])})
    assert str(raised.value) == SENTENCE


def test_what_an_optimizer_remembers_of_a_length_may_have_any_sign() -> None:
    """A mean gradient is no length."""
    refuse_poles({"optimizer/0/mu/params/jastrow/alpha": np.array([-1.0]), ALPHA: np.ones(2)})


def with_length(run: RunDir, alpha: float, version: int | None) -> None:
    """Give the run's last checkpoint this length, and its store this version, or none."""
    store = RunStore.open(run.store_path, "a")
    restored = store.checkpoint()
    assert restored is not None
    found = restored.checkpoint
    arrays = {**found.arrays, ALPHA: np.full_like(found.arrays[ALPHA], alpha)}
    store.commit(Commit(checkpoint=Checkpoint(found.phase, found.step, arrays)))
    root = zarr.open_group(run.store_path, mode="r+", use_consolidated=False)
    attributes = {k: v for k, v in root.attrs.asdict().items() if k != "ansatz_version"}
    root.attrs.put(attributes | ({} if version is None else {"ansatz_version": version}))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A run of a few steps."""
    run = make_run(tmp_path_factory.mktemp("runs"), HELIUM.replace("steps = 60", "steps = 4"))
    assert finish(start(run))[0] == 0
    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("alpha", "version", "code"), [(-0.743, None, 1), (0.743, None, 0), (-0.743, ANSATZ_VERSION, 0)]
)
def test_only_a_run_of_before_can_be_lost_to_a_pole(
    tmp_path: Path, finished: RunDir, alpha: float, version: int | None, code: int
) -> None:
    """What it means today is a wave function, and what it meant before is refused, not changed."""
    run = RunDir(copytree(finished.path, tmp_path / finished.path.name))
    with_length(run, alpha, version)
    assert finish(start(run))[0] == code
    outcome = run.read_outcome()
    store = RunStore.open(run.store_path)
    if code:
        assert outcome is not None
        assert SENTENCE in finish(start(run))[1]
        assert "ansatz_version" not in store.attrs
    else:
        assert store.attrs["ansatz_version"] == ANSATZ_VERSION
