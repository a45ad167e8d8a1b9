"""aggregate --explain, --by and its files: where each digit comes from, and where it goes."""

import csv
import json
import re

import numpy as np
import pytest
import xarray

from tests.cli.shell import Shell, finish
from tests.cli.test_results import evaluate
from tests.runs import make_run, spec_text
from vmcjob.results.explain import trace_row
from vmcjob.rundir import list_runs
from vmcjob.stats import pool
from vmcjob.store import HartreeFockRecord, RunStore

RUNS = [f"h2-000000000{seed}" for seed in range(2)]


@pytest.fixture
def results(shell: Shell) -> Shell:
    """Two finished runs of one system."""
    for seed, run_id in enumerate(RUNS):
        evaluate(finish(make_run(shell.runs, run_id, spec_text(), seed=seed)), seed)
    return shell


def test_every_step_from_the_rows_to_the_row_can_be_done_by_hand(results: Shell) -> None:
    """Each number again from those that are said to make it; the last is the table's."""
    stores = {run.path.name: run.store_path for run in list_runs(results.runs)}
    trace = trace_row("h2", stores)
    for run in trace.runs:
        energies = RunStore.open(stores[run.run_id]).series("evaluate")["energy"]
        assert run.rows["rows"] == run.rows["last step"] == len(energies) == 400
        assert run.rows["mean"] == run.estimate.mean == pytest.approx(sum(energies) / 400)
        naive = np.sqrt(sum((energies - energies.mean()) ** 2) / 399 / 400)
        assert run.errors["independent rows"]["error"] == pytest.approx(naive)
        results_of = {name: facts["result"] for name, facts in run.errors.items()}
        assert run.estimate.error == results_of[run.chosen] == max(results_of.values())
        for facts in run.errors.values():
            product = facts["error"] * facts["Student's factor"]
            assert facts["result"] == pytest.approx(product)
        assert run.estimate.n_eff == pytest.approx(400 / (2 * run.estimate.tau))
    one, other = (run.estimate for run in trace.runs)
    weights = np.array([one.error**-2, other.error**-2])
    means = np.array([one.mean, other.mean])
    common = (weights * means).sum() / weights.sum()
    assert trace.pooling["chi^2"] == pytest.approx((weights * (means - common) ** 2).sum())
    assert trace.estimate == pool([one, other])


def test_walkers_that_are_stuck_have_no_errors_to_choose_from(shell: Shell) -> None:
    """Their energies do not spread; an autocorrelation would be a division by zero."""
    run = finish(make_run(shell.runs, RUNS[0], spec_text()))
    evaluate(run, seed=0, noise=0.0)
    with np.errstate(all="raise"):
        trace = trace_row("h2", {RUNS[0]: run.store_path})
    assert trace.runs[0].errors == {}
    assert "stuck" in trace.estimate.why


def test_a_state_that_is_suspect_is_not_explained_as_converged(shell: Shell) -> None:
    """Sound statistics of a ruined wave function; the table's own verdict comes last."""
    coefficients = {spin: np.ones((1, 1)) for spin in ("up", "down")}
    attributes = {"energy": -1.2, "is_converged": True, "method": "rhf", "basis": "sto-3g"}
    start = HartreeFockRecord(attributes, coefficients)
    evaluate(finish(make_run(shell.runs, RUNS[0], spec_text())), 0, start=start)
    done = shell.run("aggregate", "--explain", RUNS[0])
    assert done.returncode == 3
    assert done.stderr == "h2 R=1.4: suspect\n"
    assert re.search(r"^statistics +sound$", done.stdout, re.MULTILINE)
    verdict = done.stdout.splitlines()[-1]
    said = r"lies \S+ mHa above Hartree-Fock; vmcjob plot h2-\S+ shows where"
    assert re.fullmatch(rf"verdict +suspect: {said}", verdict)
    assert re.search(r"^an eigenvalue is above +-1\.\d+$", done.stdout, re.MULTILINE)
    document = json.loads(shell.run("aggregate", "--explain", RUNS[0], "--json").stdout)
    assert "above Hartree-Fock" in document["why"]


@pytest.mark.slow
def test_the_last_line_is_the_table_s_own(results: Shell) -> None:
    """For people; and --json has the same numbers."""
    shown = results.run("aggregate").stdout.splitlines()[1]
    done = results.run("aggregate", "--explain", RUNS[1])
    assert done.returncode == 0, done.stderr
    digits = re.findall(r"^energy +(\S+) hartree$", done.stdout, re.MULTILINE)
    assert len(digits) == 1
    assert f"  {digits[0]}  " in shown
    assert done.stdout.count(": the largest, so the error") == 2
    document = json.loads(results.run("aggregate", "--explain", RUNS[1], "--json").stdout)
    row = json.loads(results.run("aggregate", "--json").stdout)["rows"][0]
    assert document["estimate"]["error"] == row["error"]
    assert [run["run_id"] for run in document["runs"]] == RUNS


def test_a_run_without_a_row_is_explained_by_its_reason(results: Shell) -> None:
    make_run(results.runs, "h2-0000000002", seed=2)
    done = results.run("aggregate", "--explain", "h2-0000000002")
    assert done.returncode == 4
    assert "h2-0000000002: is in no row: new: no results yet" in done.stderr


def test_a_name_is_explained_by_its_run_that_has_a_row(shell: Shell) -> None:
    """The newer run of more training has no results yet, and the row was said to be missing."""
    evaluate(finish(make_run(shell.runs, RUNS[0], spec_text())), 0)
    newer = spec_text().replace("[train]", f'[train]\nstart_from = "{RUNS[0]}"')
    make_run(shell.runs, RUNS[1], newer)
    done = shell.run("aggregate", "--explain", "h2", "--json")
    assert [run["run_id"] for run in json.loads(done.stdout)["runs"]] == [RUNS[0]]


@pytest.mark.slow
def test_rows_are_told_apart_by_a_key(results: Shell) -> None:
    """Seeds are pooled unless one asks for each; a column says which is which."""
    rows = json.loads(results.run("aggregate", "--by", "seed", "--json").stdout)["rows"]
    assert [row["name"] for row in rows] == ["h2 seed=0 R=1.4", "h2 seed=1 R=1.4"]
    assert [row["seeds"] for row in rows] == [[0], [1]]
    lines = results.run("aggregate", "--by", "seed", "-o", "-").stdout.splitlines()
    at = lines[0].split(",").index("seed")
    assert [line.split(",")[at] for line in lines[1:]] == ["0", "1"]
    (row,) = json.loads(results.run("aggregate", "--by", "R", "--json").stdout)["rows"]
    assert row["name"] == "h2 R=1.4"
    done = results.run("aggregate", "--by", "sead")
    assert done.returncode == 2
    assert done.stderr == "--by: no run has the key 'sead'; did you mean 'seed'?\n"
    done = results.run("aggregate", "--by", "color")
    assert "no run has the key 'color'; there are seed, " in done.stderr


@pytest.mark.slow
def test_a_table_is_written_as_netcdf(results: Shell) -> None:
    """Every number of the JSON, with its unit; it is replaced, and nothing else is."""
    (row,) = json.loads(results.run("aggregate", "--json").stdout)["rows"]
    for _ in range(2):
        done = results.run("aggregate", "-o", "table.nc")
        assert done.returncode == 0, done.stderr
    with xarray.open_dataset(results.cwd / "table.nc", engine="scipy") as found:
        assert float(found.energy[0]) == row["energy"]
        assert float(found.error[0]) == row["error"]
        assert found.energy.attrs["units"] == "hartree"
        assert str(found.row.values[0]) == row["name"]
    (results.cwd / "other.nc").write_text("not ours")
    done = results.run("aggregate", "-o", "other.nc")
    assert done.returncode == 2
    assert (results.cwd / "other.nc").read_text() == "not ours"


@pytest.mark.slow
def test_a_table_is_written_as_parquet(results: Shell) -> None:
    """The columns of the CSV with their types."""
    parquet = pytest.importorskip("pyarrow.parquet")
    (row,) = json.loads(results.run("aggregate", "--json").stdout)["rows"]
    done = results.run("aggregate", "-o", "table.parquet")
    assert done.returncode == 0, done.stderr
    table = parquet.read_table(results.cwd / "table.parquet")
    header = results.run("aggregate", "-o", "-").stdout.splitlines()[0]
    assert table.column_names == header.split(",")
    assert table["energy"][0].as_py() == row["energy"]
    assert table["converged"][0].as_py() is True


def test_rows_say_what_else_decided_their_numbers(results: Shell) -> None:
    """What the runs agree on once, what they do not, all of it."""
    for seed, run in enumerate(list_runs(results.runs)):
        store = RunStore.open(run.store_path, "a")
        versions = {"vmcjob": "0.1.0", "jax": f"0.1{seed}.0"}
        store.record("provenance", {"versions": versions, "devices": "1 × cpu", "dtype": "float32"})
    (row,) = json.loads(results.run("aggregate", "--json").stdout)["rows"]
    assert row["provenance"]["jax"] == "0.10.0; 0.11.0"
    assert row["provenance"]["devices"] == "1 × cpu"
    assert row["wall_time_s"] == 2.0
    header, line = results.run("aggregate", "-o", "-").stdout.splitlines()
    facts = dict(zip(*csv.reader([header, line]), strict=True))
    assert (facts["vmcjob"], facts["dtype"], facts["image_sha256"]) == ("0.1.0", "float32", "")
