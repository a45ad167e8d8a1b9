"""Run directories that have lost files: what is gone is named, and what can be done about it."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli.shell import Shell, finish
from tests.cli.test_results import evaluate
from tests.runs import make_run, spec_text
from tests.submissions import submit_here
from tests.test_aggregate import N_EVALUATE, rows, write_store
from vmcjob.errors import StoreError
from vmcjob.plan import make_plan
from vmcjob.results.table import RunResult, make_table
from vmcjob.rundir import RunDir, list_runs, select
from vmcjob.runs.status import examine
from vmcjob.spec import parse_spec
from vmcjob.store import Checkpoint, Commit, Layout, RunStore, extend

LOST_RECORD = (
    "{path}: was a run, but its run.json, which identifies it, is lost; restore that file, "
    "or move the directory away and submit again"
)
LOST_ROWS = (
    "rows 1 to 400 of evaluate/energy are missing (evaluate/energy/c/0); restore them from a copy, "
    "or begin the run anew with vmcjob rerun"
)


def make_finished(root: Path, run_id: str = "h2-0000000000", **changes) -> RunDir:
    """A run that has finished, with results."""
    run = make_run(root, run_id, spec_text(), **changes)
    noise = np.random.default_rng(1).normal(size=N_EVALUATE)
    write_store(run.store_path, run_id, -1.17 + 0.02 * noise, N_EVALUATE)
    text = (run.store_path / "zarr.json").read_text()
    finish(run)
    (run.store_path / "zarr.json").write_text(text)
    return run


def test_a_lost_chunk_is_damage_to_status_and_aggregate(tmp_path: Path) -> None:
    """Zarr reads it as NaN, as if the calculation had gone wrong."""
    run = make_finished(tmp_path)
    assert examine(run).message == ""
    (run.store_path / "evaluate" / "energy" / "c" / "0").unlink()
    assert examine(run).message == LOST_ROWS
    result = RunResult(run.path.name, "h2", {}, 0, "a" * 64, "FINISHED", run.store_path)
    reason = f"finished: {run.store_path}: {LOST_ROWS}"
    assert make_table([result]).excluded == ((run.path.name, reason),)


@pytest.mark.parametrize(
    ("n_rows", "lost", "span"),
    [
        (400, [0], "1 to 400"),
        (9000, [1], "4097 to 8192"),
        (9000, [0, 2], "1 to 4096, 8193 to 9000"),
        (40_000, [0, 1, 2, 3, 4], "1 to 8000, 8001 to 16000, 16001 to 24000, …"),
    ],
)
def test_the_rows_that_are_missing_are_named(n_rows, lost, span, tmp_path) -> None:
    store = write(tmp_path / "run.zarr", n_rows)
    for number in lost:
        (store.path / "evaluate" / "variance" / "c" / str(number)).unlink()
    with pytest.raises(StoreError) as damage:
        store.series("evaluate")
    assert str(damage.value) == (
        f"{store.path}: rows {span} of evaluate/variance are missing (evaluate/variance/c/"
        f"{lost[0]}); restore them from a copy, or begin the run anew with vmcjob rerun"
    )


def test_an_array_that_is_missing_altogether_is_damage(tmp_path: Path) -> None:
    store = write(tmp_path / "run.zarr", 10)
    (store.path / "evaluate" / "wall_time" / "zarr.json").unlink()
    with pytest.raises(StoreError, match=r"run\.zarr: evaluate/wall_time is missing; restore"):
        store.series("evaluate")


def test_rows_that_were_never_committed_are_not_missed(tmp_path: Path) -> None:
    """A run of 1e5 steps has few of them at first."""
    layout = Layout(n_train=2, n_evaluate=100_000, n_walkers=4, n_electrons=2, n_snapshots=0)
    path = tmp_path / "run.zarr"
    store = RunStore.create(path, run_id="h2", spec_text="", provenance={}, layout=layout)
    assert len(store.series("evaluate")["step"]) == 0
    checkpoint = Checkpoint("evaluate", 10, {})
    store.commit(Commit(evaluate=rows("evaluate", np.ones(10)), checkpoint=checkpoint))
    assert len(RunStore.open(path).series("evaluate")["step"]) == 10


def write(path: Path, n_rows: int) -> RunStore:
    write_store(path, "h2-00", np.ones(n_rows), n_rows)
    return RunStore.open(path)


LEFT: list[Callable[[RunDir], Path]] = [
    lambda run: run.spec_path,
    lambda run: run.store_path,
    lambda run: run.heartbeat_path,
    lambda run: run.log_path,
    lambda run: run.lock_path,
    lambda run: run.attempts_path,
]


@pytest.mark.parametrize("path_of", LEFT)
def test_a_run_that_lost_its_record_is_seen_by_whatever_is_left(path_of, tmp_path) -> None:
    run = RunDir(tmp_path / "h2-0000000000")
    path_of(run).mkdir(parents=True)
    assert list_runs(tmp_path) == [run]


def test_what_is_no_run_is_not_taken_for_one(tmp_path: Path) -> None:
    """Neither a folder of specs, nor an empty one."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "spec.toml").touch()
    (tmp_path / "h2-0000000000").mkdir()
    assert list_runs(tmp_path) == []


def test_a_lost_record_sets_the_exit_codes(shell: Shell) -> None:
    """Else one seed fewer would be pooled, unnoticed."""
    first, second = (make_finished(shell.runs, f"h2-000000000{n}", seed=n) for n in range(2))
    evaluate(first, 0)  # converged, so that the exit code is about the record
    second.record_path.unlink()
    sentence = LOST_RECORD.format(path=f"runs/{second.path.name}")
    done = shell.run("status")
    assert (done.returncode, done.stderr) == (1, sentence + "\n")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["run", first.path.name]
    done = shell.run("aggregate")
    assert done.returncode == 3
    assert done.stderr == f"{sentence}\nnot all runs could be read\n"
    done = shell.run("run", str(second.path))
    assert (done.returncode, done.stderr) == (1, LOST_RECORD.format(path=second.path) + "\n")


def test_submitting_over_what_rm_has_left_says_what_to_do(tmp_path: Path) -> None:
    """A worker that was at it wrote its heartbeat into the directory while it was removed."""
    text = 'name = "h"\nsystem.atoms = [["H", 0, 0, 0]]\n'
    plan = make_plan(parse_spec(text, "h.toml"))
    ghost = RunDir(tmp_path / plan.tasks[0].run_id)
    ghost.path.mkdir()
    ghost.heartbeat_path.write_text("{}")
    receipt = submit_here(tmp_path, [plan], max_parallel=1)
    assert receipt.submitted == ()
    (skipped,) = receipt.skipped
    assert str(skipped.error) == LOST_RECORD.format(path=ghost.path)


def test_something_else_in_the_place_of_a_run_is_not_written_into(tmp_path: Path) -> None:
    text = 'name = "h"\nsystem.atoms = [["H", 0, 0, 0]]\n'
    plan = make_plan(parse_spec(text, "h.toml"))
    path = tmp_path / plan.tasks[0].run_id
    path.mkdir()
    (path / "diary").touch()
    with pytest.raises(Exception, match="cannot be made") as refusal:
        submit_here(tmp_path, [plan], max_parallel=1)
    assert str(refusal.value) == (
        f"{path}: cannot be made: its place is taken by something that is not a run; move that away"
    )


def lengthen(run: RunDir, run_id: str, n_more: int) -> RunDir:
    """A run that goes on from another for so many steps."""
    longer = make_run(run.path.parent, run_id)
    store = RunStore.open(run.store_path)
    n_steps = store.n_planned["evaluate"] + n_more
    extend(store, longer.store_path, run_id=run_id, spec_text="", n_evaluate=n_steps, n_snapshots=0)
    return longer


def test_a_name_means_the_longest_run_of_its_line(tmp_path: Path) -> None:
    """After `resume --more-steps`, in whatever order they were made, and through branches."""
    short = make_finished(tmp_path, "h2-1000000000")
    longer = lengthen(short, "h2-2000000000", 200)
    assert select(tmp_path, ["h2"]) == [longer]
    longest = lengthen(longer, "h2-3000000000", 200)
    branch = lengthen(short, "h2-4000000000", 100)
    other = make_finished(tmp_path, "h2-5000000000", seed=1)
    assert set(select(tmp_path, ["h2"])) == {longest, other}
    assert select(tmp_path, ["h2-1000000000"]) == [short]
    assert set(select(tmp_path, ["h2-*"])) == {short, longer, longest, branch, other}


def test_every_command_takes_a_name_for_the_longest_run(shell: Shell) -> None:
    short = make_finished(shell.runs, "h2-1000000000")
    longer = lengthen(short, "h2-2000000000", 200)
    done = shell.run("show", "h2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].split() == ["run", longer.path.name]
    shown = shell.run("status", "h2").stdout.splitlines()[1:]
    assert [line.split()[0] for line in shown] == [longer.path.name]
