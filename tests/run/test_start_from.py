"""A run that begins with the parameters and walkers of another."""

from pathlib import Path

import numpy as np
import pytest

from tests.run import fake
from tests.run.harness import HELIUM, finish, make_run, start
from vmcjob.errors import NotFoundError, UsageError, VmcJobError
from vmcjob.plan import Plan, make_plan
from vmcjob.rundir import Outcome, RunDir
from vmcjob.scheduler import require_starts
from vmcjob.scheduler.records import create_run
from vmcjob.spec import parse_spec
from vmcjob.store import RunStore


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """The run to start from."""
    run = make_run(tmp_path_factory.mktemp("runs"), HELIUM.replace("steps = 60", "steps = 10"))
    code, log = finish(start(run, program=fake.PROGRAM))
    assert code == 0, log
    return run


def plan_from(origin: RunDir, text: str = HELIUM) -> Plan:
    """The plan of a run that starts from another."""
    text = text.replace("[pretrain]\nsteps = 0\n", "").replace(
        "[train]\nsteps = 60", f'[train]\nsteps = 0\nstart_from = "{origin.path.name}"'
    )
    return make_plan(parse_spec(text, "test.toml"))


def start_from(origin: RunDir, text: str = HELIUM) -> RunDir:
    """The directory of a run that starts from another, beside it."""
    plan = plan_from(origin, text)
    require_starts(origin.path.parent, [plan])
    return create_run(origin.path.parent, plan.source, plan.tasks[0])


@pytest.mark.slow
def test_a_run_begins_where_another_ended(finished: RunDir) -> None:
    """With as many walkers of its own; without training, its parameters are the other's."""
    run = start_from(finished, HELIUM.replace("walkers = 64", "walkers = 100"))
    code, log = finish(start(run, program=fake.PROGRAM))
    assert code == 0, log
    assert "Hartree-Fock" not in log
    ours, theirs = (RunStore.open(r.store_path).checkpoint() for r in (run, finished))
    assert ours is not None
    assert theirs is not None
    for name, values in theirs.checkpoint.arrays.items():
        if name.startswith("params/"):
            np.testing.assert_array_equal(ours.checkpoint.arrays[name], values, err_msg=name)
    assert ours.checkpoint.arrays["walkers"].shape == (100, 2, 3)
    provenance = RunStore.open(run.store_path).attrs["provenance"]
    wanted = {"run_id": finished.path.name, "phase": "evaluate", "step": 10}
    assert provenance["start_from"] == wanted


@pytest.mark.slow
@pytest.mark.parametrize("follows", [True, False])
def test_walkers_go_along_with_nuclei_that_are_elsewhere(finished: RunDir, follows: bool) -> None:
    """Far up in the well of the fake calculation, which is at the origin whatever nuclei do."""
    elsewhere = HELIUM.replace('["He", 0.0, 0.0, 0.0]', '["He", 0.0, 0.0, 100.0]')
    keys = "" if follows else "\nfollow_nuclei = false"
    text = elsewhere.replace("[train]\nsteps = 60", f"[train]\nsteps = 60{keys}")
    run = start_from(finished, text)
    code, log = finish(start(run, program=fake.PROGRAM))
    assert code == 0, log
    energies = RunStore.open(run.store_path).series("evaluate")["energy"]
    assert (energies[0] > 1000) == follows


WIDTH = "one_electron_width = 8"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (WIDTH, "one_electron_width = 9", "has ansatz.one_electron_width = 8; expected 9: start"),
        (WIDTH, f"{WIDTH}\njastrow = false", "has ansatz.jastrow = true; expected false: start"),
        ('["He", 0.0, 0.0, 0.0]', '["Li", 0.0, 0.0, 0.0]', "has 1 and 1 electrons of either spin"),
        ("[train]", '[numerics]\ndtype = "float64"\n[train]', "has numerics.dtype float32"),
    ],
    ids=["width", "jastrow", "electrons", "dtype"],
)
def test_a_run_of_another_wave_function_is_no_start(
    finished: RunDir, old: str, new: str, words: str
) -> None:
    """Also where its parameters would fit, or be more than are wanted; nothing is written."""
    with pytest.raises(VmcJobError) as raised:
        start_from(finished, HELIUM.replace(old, new))
    assert str(raised.value).startswith(f"test.toml: train.start_from: {finished.path} has ")
    assert words in str(raised.value)
    assert raised.value.exit_code == UsageError.exit_code


def test_a_worker_looks_at_its_start_too(finished: RunDir) -> None:
    """A run that was recorded without being asked, by an older vmcjob say, fails with a reason."""
    plan = plan_from(finished, HELIUM.replace("one_electron_width = 8", "one_electron_width = 9"))
    run = create_run(finished.path.parent, plan.source, plan.tasks[0])
    code, _ = finish(start(run))
    outcome = run.read_outcome()
    assert code == 1
    assert outcome is not None
    assert outcome.outcome is Outcome.FAILED
    assert outcome.message == (
        f"train.start_from: {finished.path.name} has ansatz.one_electron_width = 8; expected 9: "
        "start from another run, or without one"
    )


def test_a_run_that_is_not_there_or_not_finished_is_refused(tmp_path: Path) -> None:
    """Before anything is written, whoever would have run it."""
    with pytest.raises(VmcJobError, match=r"start_from: .*he-0123456789 is not there") as raised:
        start_from(RunDir(tmp_path / "he-0123456789"))
    assert raised.value.exit_code == NotFoundError.exit_code
    unfinished = make_run(tmp_path)
    with pytest.raises(VmcJobError, match="has no results yet") as raised:
        start_from(unfinished)
    assert raised.value.exit_code == UsageError.exit_code
