"""The table over many runs: what is pooled, what is left out, and that no run gets lost."""

import csv
import json
import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

from vmcjob.results.evaluation import Evaluated, attempt_all, share_slopes
from vmcjob.results.table import RunResult, make_table
from vmcjob.store import Checkpoint, Commit, Layout, RunStore
from vmcjob.store.layout import SERIES, SeriesName
from vmcjob.verdict.extrapolation import Extrapolation, Point

N_EVALUATE = 400
MakeRun = Callable[..., RunResult]


def rows(phase: SeriesName, energies: np.ndarray) -> dict[str, np.ndarray]:
    """Columns of a series with these energies, a variance of 0.04 hartree² and nothing else."""
    columns = {name: np.zeros(len(energies)) for name in SERIES[phase]}
    return columns | {"energy": energies, "variance": np.full(len(energies), 0.04)}


def write_store(
    path: Path,
    run_id: str,
    energies: np.ndarray,
    n_evaluate: int,
    traits: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> None:
    """A store after training that holds these evaluation energies."""
    store = RunStore.create(
        path,
        run_id=run_id,
        spec_text="name = 'h2'",
        provenance={},
        layout=Layout(
            n_train=100, n_evaluate=n_evaluate, n_walkers=4, n_electrons=2, n_snapshots=0
        ),
    )
    store.commit(
        Commit(
            train=rows("train", np.zeros(100)),
            evaluate=rows("evaluate", energies) | dict(traits),
            checkpoint=Checkpoint("evaluate", len(energies), {}),
        )
    )


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """A run with white-noise energies around `mean`, one standard error of 0.001 hartree."""

    def make(
        seed: int = 0,
        *,
        mean: float = -1.17,
        done: int = N_EVALUATE,
        state: str = "FINISHED",
        point: Mapping[str, int | float | str] | None = None,
        science: str = "a" * 64,
        energies: np.ndarray | None = None,
        traits: Mapping[str, np.ndarray] = MappingProxyType({}),
    ) -> RunResult:
        run_id = f"h2-{len(list(tmp_path.iterdir())):02d}"
        path = tmp_path / run_id / "run.zarr"
        path.parent.mkdir()
        noise = np.random.default_rng(seed).normal(size=done)
        white = mean + 0.02 * (noise - noise.mean())
        if energies is None:
            write_store(path, run_id, white, N_EVALUATE, traits)
        else:
            write_store(path, run_id, energies, len(energies), traits)
        return RunResult(run_id, "h2", point or {}, seed, science, state, path)

    return make


def test_one_run_becomes_one_row(make_run):
    """Energy, error and variance are those of the evaluation series, in its units."""
    run = make_run()
    table = make_table([run])
    (row,) = table.rows
    assert row.name == "h2"
    assert (row.runs, row.n_steps, row.run_ids, row.seeds) == (1, N_EVALUATE, (run.run_id,), (0,))
    assert row.energy == pytest.approx(-1.17)
    assert row.error == pytest.approx(0.001, rel=0.2)
    assert row.variance == pytest.approx(0.04)
    assert row.tau == pytest.approx(0.5, abs=0.2)
    assert row.converged
    assert table.excluded == ()


def test_training_energies_never_enter_the_table(make_run):
    """Training is biased by construction; its energies here are zero and would show."""
    (row,) = make_table([make_run()]).rows
    assert row.energy == pytest.approx(-1.17)
    assert row.n_steps == N_EVALUATE


def test_seeds_of_one_job_share_a_row_and_shrink_its_error(make_run):
    """Four agreeing seeds know the energy twice as well as one."""
    runs = [make_run(seed) for seed in (3, 1, 2, 0)]
    (row,) = make_table(runs).rows
    assert (row.runs, row.n_steps) == (4, 4 * N_EVALUATE)
    assert row.seeds == (0, 1, 2, 3)
    assert row.error == pytest.approx(0.0005, rel=0.2)
    assert row.converged


def test_seeds_that_disagree_are_said_to(make_run):
    """Two optima forty error bars apart are one row whose error spans them, not converged."""
    (row,) = make_table([make_run(0, mean=-1.17), make_run(1, mean=-1.13)]).rows
    assert row.error > 0.02
    assert not row.converged
    assert "disagree" in row.why
    # More steps would only make them disagree more.
    assert f"vmcjob resume {row.run_ids[1]} --more-training " in row.why


def test_seeds_that_differ_by_less_than_counts_agree(make_run):
    """Sixteen ions of helium, exact to 1e-9 hartree, were "not yet" for errors of that size."""
    random = np.random.default_rng(2)
    energies = [-2.0 + 1e-7 * seed + 1e-8 * random.normal(size=N_EVALUATE) for seed in range(2)]
    (row,) = make_table([make_run(k, energies=own) for k, own in enumerate(energies)]).rows
    assert 5e-8 < row.error < 1e-6
    assert "disagree" not in row.why


def test_the_points_of_a_sweep_are_rows_in_the_order_of_the_sweep(make_run):
    """Numeric order, so that a curve can be read down the column: 2 before 10, unlike as text."""
    runs = [
        make_run(point=MappingProxyType({"R": r}), science=f"{r}" * 32) for r in (10.0, 1.2, 2.0)
    ]
    table = make_table(runs)
    assert [row.name for row in table.rows] == ["h2 R=1.2", "h2 R=2.0", "h2 R=10.0"]
    assert table.rows[0].point == {"R": 1.2}


SPRING = {"optimizer.kind": "spring", "optimizer.damping": 0.001, "train.steps": 100}
KFAC = {"optimizer.kind": "kfac", "optimizer.momentum": 0.0, "train.steps": 100}


@pytest.mark.parametrize(
    ("one", "other", "names"),
    [
        (SPRING, SPRING | {"train.steps": 9}, ["h2 (train.steps=100)", "h2 (train.steps=9)"]),
        (SPRING, KFAC, ["h2 (optimizer.kind=spring)", "h2 (optimizer.kind=kfac)"]),
        (
            SPRING,
            KFAC | {"train.steps": 9},
            [
                "h2 (optimizer.kind=spring, train.steps=100)",
                "h2 (optimizer.kind=kfac, train.steps=9)",
            ],
        ),
        ({}, {}, ["h2 (0123456789)", "h2 (abcdef0123)"]),
        ({"a.b": 1, "a.c": 1, "a.d": 1}, {}, ["h2 (0123456789)", "h2 (abcdef0123)"]),
    ],
)
def test_rows_of_one_name_differ_by_what_the_user_wrote_or_by_a_run_id(one, other, names, make_run):
    """Same name, other science: pooling them would mix two methods, equal names confuse."""
    runs = []
    for run_id, method in (("h2-0123456789", one), ("h2-abcdef0123", other)):
        run = make_run()
        shutil.rmtree(run.store_path)
        write_store(run.store_path, run_id, np.linspace(-1.0, -1.1, N_EVALUATE), N_EVALUATE)
        runs.append(replace(run, run_id=run_id, science_sha256=run_id, method=method))
    table = make_table(runs)
    assert [row.name for row in table.rows] == names
    assert [row.runs for row in table.rows] == [1, 1]


@pytest.mark.parametrize("state", ["RUNNING", "DEAD", "PREEMPTED", "DIVERGED", "FAILED"])
def test_an_unfinished_run_is_excluded_with_its_state_and_standing(state, make_run):
    """A half-done evaluation is no result yet; the reader learns how far it is."""
    run = make_run(done=312, state=state)
    table = make_table([run])
    assert table.rows == ()
    assert table.excluded == ((run.run_id, f"{state.lower()}: 312 of 400 evaluation steps"),)


def test_a_run_that_calls_itself_finished_must_have_all_its_steps(make_run):
    """An outcome file and a store can contradict each other; the store holds the numbers."""
    (excluded,) = make_table([make_run(done=312)]).excluded
    assert excluded.reason == "finished: 312 of 400 evaluation steps"


def test_a_run_still_in_training_says_so(make_run, tmp_path):
    """0 of 400 evaluation steps would hide that it is moving."""
    path = tmp_path / "h2-train" / "run.zarr"
    path.parent.mkdir()
    layout = Layout(n_train=10, n_evaluate=4, n_walkers=4, n_electrons=2, n_snapshots=0)
    store = RunStore.create(path, run_id="h2-train", spec_text="", provenance={}, layout=layout)
    checkpoint = Checkpoint("train", 3, {})
    store.commit(Commit(train=rows("train", np.zeros(3)), checkpoint=checkpoint))
    run = RunResult("h2-train", "h2", {}, 0, "a" * 64, "RUNNING", path)
    assert make_table([run]).excluded[0].reason == "running: 3 of 10 training steps"


def test_a_run_that_has_not_begun_has_no_results_yet(tmp_path):
    """A queued run is normal, so no talk of missing files."""
    run = RunResult("h2-q", "h2", {}, 0, "a" * 64, "QUEUED", tmp_path / "run.zarr")
    assert make_table([run]).excluded == (("h2-q", "queued: no results yet"),)


def test_a_job_without_evaluation_has_no_energy(make_run):
    """evaluate.steps = 0 is allowed, for training alone."""
    (excluded,) = make_table([make_run(energies=np.empty(0))]).excluded
    assert excluded.reason == "finished: evaluate.steps is 0"


def test_a_single_evaluation_step_has_no_error_and_is_left_out(make_run):
    """One number cannot say how far off it is."""
    (excluded,) = make_table([make_run(energies=np.array([-1.0]))]).excluded
    assert excluded.reason == "finished: only one sample"


def test_energies_that_are_not_finite_are_not_averaged_away(make_run):
    """One NaN among thousands is a broken run, not a missing value."""
    energies = np.full(50, -1.0)
    energies[7] = math.nan
    (excluded,) = make_table([make_run(energies=energies)]).excluded
    assert excluded.reason == "finished: 1 of 50 samples are not finite"


def test_a_damaged_store_costs_its_own_run_only(make_run):
    """The error's own words are the reason; the other run still makes its row."""
    broken, sound = make_run(0), make_run(1)
    (broken.store_path / "zarr.json").write_text("{ half a")
    table = make_table([broken, sound])
    assert [row.run_ids for row in table.rows] == [(sound.run_id,)]
    assert table.excluded[0].run_id == broken.run_id
    assert "not a readable Zarr store" in table.excluded[0].reason


@pytest.mark.parametrize("n_processes", [2, 3])
def test_several_processes_make_the_same_table(make_run, n_processes):
    """Row for row and digit for digit, with a damaged store among them named by its own words."""
    runs = [make_run(k, point={"R": 1.0 + k % 3}, science=f"{k % 3}" * 64) for k in range(7)]
    damaged = runs[3].store_path / "evaluate/energy/c/0"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    table = make_table(runs, partial(attempt_all, n_processes=n_processes, alone_s=0.0))
    assert table == make_table(runs)
    assert [row.runs for row in table.rows] == [2, 2, 2]
    (excluded,) = table.excluded
    assert excluded.run_id == runs[3].run_id
    assert "evaluate/energy is not readable" in excluded.reason


def test_a_flipped_bit_in_the_energies_is_not_averaged(make_run):
    """Chunks carry checksums: a plausible wrong energy must not reach a table."""
    run = make_run()
    chunk = run.store_path / "evaluate" / "energy" / "c" / "0"
    data = bytearray(chunk.read_bytes())
    data[100] ^= 1
    chunk.write_bytes(data)
    table = make_table([run])
    assert table.rows == ()
    assert "evaluate/energy is not readable" in table.excluded[0].reason


def test_the_store_of_another_run_is_not_used(make_run):
    """A copied run.zarr would count one run's samples as another's."""
    first, second = make_run(0), make_run(1)
    shutil.rmtree(second.store_path)
    shutil.copytree(first.store_path, second.store_path)
    table = make_table([first, second])
    assert [row.runs for row in table.rows] == [1]
    assert f"belongs to run {first.run_id}" in table.excluded[0].reason


def test_a_run_given_twice_counts_once(make_run):
    """Overlapping selectors must not make a run its own confirmation."""
    run = make_run()
    table = make_table([run, run])
    assert table.rows[0].runs == 1
    assert table.excluded == ((run.run_id, "given twice, counted once"),)


def test_every_run_is_in_a_row_or_excluded(make_run):
    """The invariant of the table: nothing vanishes."""
    runs = [make_run(0), make_run(1), make_run(2, done=10, state="RUNNING"), make_run(3, done=9)]
    table = make_table(runs)
    named = [run_id for row in table.rows for run_id in row.run_ids]
    named += [run_id for run_id, _ in table.excluded]
    assert sorted(named) == sorted(run.run_id for run in runs)


def test_no_runs_make_an_empty_table():
    """An empty answer is an answer, with its schema."""
    assert make_table([]).to_json() == {
        "schema_version": 1,
        "rows": [],
        "excluded": [],
        "contained": [],
    }


def test_the_json_has_the_promised_fields_and_survives_strict_parsers(make_run):
    """Scripts rely on these names; NaN and infinity are not JSON."""
    runs = [make_run(point={"R": 1.2}), make_run(1, done=3, state="DEAD")]
    document = json.loads(json.dumps(make_table(runs).to_json(), allow_nan=False))
    assert document["schema_version"] == 1
    promised = {"name", "runs", "n_steps", "energy", "error", "variance", "tau", "n_eff"}
    assert promised | {"converged", "run_ids"} <= set(document["rows"][0])
    assert document["rows"][0]["run_ids"] == [runs[0].run_id]
    assert document["excluded"] == [
        {"run_id": runs[1].run_id, "reason": "dead: 3 of 400 evaluation steps"}
    ]


def test_the_csv_reads_back_to_the_same_digits(make_run):
    """A table for a spreadsheet may be ugly, but not rounded."""
    table = make_table([make_run(0), make_run(1), make_run(point={"R": 1.2}, science="b" * 64)])
    lines = list(csv.DictReader(table.to_csv().splitlines()))
    assert [line["name"] for line in lines] == ["h2", "h2 R=1.2"]
    assert [float(line["energy"]) for line in lines] == [row.energy for row in table.rows]
    assert lines[0]["run_ids"].split() == list(table.rows[0].run_ids)
    assert lines[0]["converged"] == "true"
    assert [line["R"] for line in lines] == ["", "1.2"]


def test_the_reference_goes_along_and_may_be_missing(make_run):
    """What the spec calls the exact energy stands beside the result, in CSV and in JSON."""
    runs = [replace(make_run(), reference=-1.174476), make_run(point={"R": 1.2}, science="b" * 64)]
    table = make_table(runs)
    assert [line["reference"] for line in csv.DictReader(table.to_csv().splitlines())] == [
        "-1.174476",
        "",
    ]
    rows = json.loads(json.dumps(table.to_json()))["rows"]
    assert [row["reference"] for row in rows] == [-1.174476, None]


def test_runs_of_one_sweep_share_a_slope_and_no_others(make_run):
    """Another method under the same name has a slope of its own, here none, for it is one run."""
    points = [make_run(k, point={"R": 1.0 + k}, science=f"{k}" * 64) for k in range(3)]
    other = make_run(3, point={"R": 1.0}, science="d" * 64)
    runs = [*points, replace(other, method={"optimizer.kind": "kfac"})]
    slopes = dict(zip((run.run_id for run in runs), (1.0, 3.0, None, 5.0), strict=True))

    def attempts(chosen):
        for run, item in zip(chosen, attempt_all(chosen), strict=True):
            assert isinstance(item, Evaluated)
            slope = slopes[run.run_id]
            line = (-1.2, 0.1, slope, "") if slope else (None, None, None, "no line")
            own = Extrapolation(*line, slope_error=2.0, end=Point(0.01, 0.0, -1.0, 0.0))
            yield item._replace(extrapolation=own)

    rows = make_table(runs, share_slopes(attempts)).rows
    found = {row.run_ids[0]: row.extrapolated for row in rows}
    assert [found[run.run_id] for run in points] == pytest.approx([-1.02] * 3)
    assert found[runs[3].run_id] is None
    unshared = make_table(runs, attempts).rows
    assert sorted(str(row.extrapolated) for row in unshared) == ["-1.2", "-1.2", "-1.2", "None"]


def test_a_spin_that_no_step_has_measured_is_no_damage(make_run):
    """Zarr has no file of a column that is NaN throughout, as S² is of one electron."""
    never = np.full(N_EVALUATE, np.nan)
    run = replace(make_run(traits={"s2": never, "outermost": never}), spins=(1, 0))
    assert not (run.store_path / "evaluate" / "s2" / "c").exists()
    (row,) = make_table([run]).rows
    assert (row.s2, row.s2_error, row.s2_expected) == (0.75, 0.0, 0.75)
    assert (row.verdict, row.why) == ("converged", "")


def test_a_wrong_spin_is_in_the_row(make_run):
    """S² and its error as numbers, and a sentence."""
    s2 = np.full(N_EVALUATE, np.nan)
    s2[9::10] = np.random.default_rng(0).normal(0.8, 0.1, N_EVALUATE // 10)
    (row,) = make_table([replace(make_run(traits={"s2": s2}), spins=(1, 1))]).rows
    assert row.verdict == "suspect"
    assert row.s2 == pytest.approx(0.8, abs=0.05)
    assert "it looks like a mixture of a singlet and a triplet" in row.why
