"""aggregate, as users type it."""

import csv
import json
import re
import shutil

import numpy as np
import pytest

from tests.cli.shell import Shell, finish
from tests.cli.test_plot import make_finished
from tests.runs import make_run, spec_text
from vmcjob.rundir import Outcome, OutcomeRecord, RunDir, list_runs
from vmcjob.spec import dump_spec, parse_spec
from vmcjob.store import Checkpoint, Commit, HartreeFockRecord, Layout, RunStore
from vmcjob.store.layout import SERIES

N_STEPS = 400
PROMISED = {"name", "runs", "n_steps", "energy", "error", "variance", "tau", "n_eff"}
PROMISED |= {"converged", "run_ids"}
WITH_REFERENCE = """
name = "h2"
[system]
atoms = [["H", 0.0, 0.0, 0.0], ["H", 0.0, 0.0, 1.4]]
reference = -1.174476
"""


def evaluate(
    run: RunDir,
    seed: int,
    n_done: int = N_STEPS,
    start: HartreeFockRecord | None = None,
    noise: float = 0.02,
) -> None:
    """Give a run a store with white noise around -1.17 hartree, one standard error 0.001.

    Its training is at rest.
    """
    layout = Layout(n_train=N_STEPS, n_evaluate=N_STEPS, n_walkers=2, n_electrons=2, n_snapshots=0)
    shutil.rmtree(run.store_path, ignore_errors=True)
    store = RunStore.create(
        run.store_path,
        run_id=run.path.name,
        spec_text="",
        provenance={},
        layout=layout,
        hartree_fock=start,
    )
    random, ones, of_train = np.random.default_rng(seed), np.ones(n_done), np.ones(N_STEPS)
    rows = dict.fromkeys(SERIES["evaluate"], ones)
    rows |= {"energy": -1.17 + noise * random.normal(size=n_done), "variance": 8e-4 * ones}
    rows["s2"] = 0.0 * ones
    train = dict.fromkeys(SERIES["train"], of_train)
    train |= {
        "energy": -1.17 + 0.002 * random.normal(size=N_STEPS),
        "variance": 8e-4 * of_train,
    }
    end = Checkpoint("evaluate", n_done, {})
    store.commit(Commit(train=train, evaluate=rows, checkpoint=end))


def test_usage_stands_beside_energies(results):
    """Each run's worker is asked for its use; a run without one has no numbers, and no zeros."""
    run = list_runs(results.runs)[0]
    events = [{"event": "start", "time": 100.0}, {"event": "end", "time": 160.0, "cpu_s": 90.0}]
    run.attempts_path.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    done = results.run("aggregate", "--usage")
    assert re.search(rf"\n{run.path.name} +worker +1\.5 +1 min\n", done.stdout), done.stdout
    used, unknown = json.loads(results.run("aggregate", "--usage", "--json").stdout)["usage"]
    assert used["run_id"] == run.path.name
    assert (used["worker"]["busy_cpus"], used["accounting"], used["advice"]) == (1.5, None, None)
    assert set(unknown["worker"].values()) == {None}
    for options in (("-o", "-"), ("--explain", run.path.name)):
        done = results.run("aggregate", "--usage", *options)
        assert (done.returncode, "choose one" in done.stderr) == (2, True)


@pytest.fixture
def results(shell: Shell) -> Shell:
    """Two finished runs of one system."""
    for seed in range(2):
        run = make_run(shell.runs, f"h2-000000000{seed}", spec_text(), seed=seed)
        evaluate(finish(run), seed)
    return shell


def test_finished_runs_become_one_line_with_an_error_bar(results):
    done = results.run("aggregate")
    assert done.returncode == 0, done.stderr
    title, line = done.stdout.splitlines()
    assert title.split() == [
        "name",
        "energy",
        "runs",
        "steps",
        "variance",
        "tau",
        "n_eff",
        "verdict",
    ]
    assert line.startswith("h2 R=1.4  -1.1")
    assert line.endswith("  converged")
    assert done.stderr == ""


def test_a_narrow_terminal_cuts_no_note(shell: Shell) -> None:
    """It stands below the table, to its end: the command that helps."""
    atom = '[["H", 0.0, 0.0, 0.0]]'
    make_finished(shell.runs, "h-0000000000", -0.5, atom, n_train=20, point={})
    code, shown = shell.run_on_terminal("aggregate", n_columns=80)
    (row,) = json.loads(shell.run("aggregate", "--json").stdout)["rows"]
    assert code == 3
    assert len(row["why"]) > 80
    why, _, command = row["why"].rpartition("; ")
    assert command == f"vmcjob resume h-0000000000 {row['resume_with']} trains on"
    assert f"h: {why}\n" in shown
    assert f"\n  vmcjob resume h-0000000000 {row['resume_with']}\x1b[0m\n" in shown
    assert "..." not in shown


def test_an_energy_with_a_reference_shows_its_distance(results):
    """-1.17 is 4.476 mHa above the exact energy of the spec, give or take its error."""
    for run in list_runs(results.runs):
        text = dump_spec(parse_spec(WITH_REFERENCE, "h2.toml").points[0].spec)
        run.write_spec_text(text)
    header, line = results.run("aggregate").stdout.splitlines()
    off = float(line[header.index("off by mHa") :].split("(")[0])
    assert off == pytest.approx(4.476, abs=3.0)


def test_a_byte_order_mark_does_not_cost_the_reference(results):
    """Some editors put one in front of what they save."""
    text = dump_spec(parse_spec(WITH_REFERENCE, "h2.toml").points[0].spec)
    for run in list_runs(results.runs):
        run.write_spec_text("\ufeff" + text)
    (row,) = json.loads(results.run("aggregate", "--json").stdout)["rows"]
    assert row["reference"] == -1.174476


def test_an_energy_with_a_start_shows_what_was_added_to_it(results):
    """-1.17 is 41 mHa below the Hartree-Fock energy of the start, give or take its error."""
    coefficients = {spin: np.ones((1, 1)) for spin in ("up", "down")}
    attributes = {"energy": -1.129, "is_converged": True, "method": "rhf", "basis": "sto-3g"}
    for seed, run in enumerate(list_runs(results.runs)):
        evaluate(run, seed, start=HartreeFockRecord(attributes, coefficients))
    header, line = results.run("aggregate").stdout.splitlines()
    added = float(line[header.index("E - HF/sto-3g, mHa") :].split("(")[0])
    assert added == pytest.approx(-41.0, abs=3.0)


def test_aggregate_json_has_the_promised_shape(results):
    done = results.run("aggregate", "--json", "h2")
    document = json.loads(done.stdout, parse_constant=pytest.fail)
    assert (document["schema_version"], document["excluded"]) == (1, [])
    (row,) = document["rows"]
    assert set(row) >= PROMISED
    assert (row["name"], row["runs"], row["n_steps"]) == ("h2 R=1.4", 2, 2 * N_STEPS)
    assert row["run_ids"] == ["h2-0000000000", "h2-0000000001"]
    assert abs(row["energy"] + 1.17) < 5 * row["error"] < 0.01


def test_a_run_that_failed_is_left_out_aloud_and_sets_the_exit_code(results):
    """A script must not take half of a sweep for the whole."""
    failed = make_run(results.runs, "h2-0000000002", seed=2)
    evaluate(failed, 2, n_done=100)
    failed.write_outcome(OutcomeRecord(outcome=Outcome.FAILED, message="the disk is full"))
    done = results.run("aggregate")
    assert done.returncode == 3
    assert len(done.stdout.splitlines()) == 2
    assert "h2-0000000002  failed: 100 of 400 evaluation steps" in done.stderr
    assert done.stderr.splitlines()[-1] == "1 run left out"
    excluded = json.loads(results.run("aggregate", "--json").stdout)["excluded"]
    assert [set(item) for item in excluded] == [{"run_id", "reason"}]


def test_a_run_that_was_not_started_is_without_a_result_too(results):
    make_run(results.runs, "h2-0000000002", seed=2)
    assert results.run("aggregate").returncode == 3
    assert results.run("aggregate", "h2-0000000000", "h2-0000000001").returncode == 0


def test_the_csv_table_keeps_every_digit(results):
    done = results.run("aggregate", "-o", "table.csv")
    assert done.stderr == "wrote table.csv\n"
    with open(results.cwd / "table.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    document = json.loads(results.run("aggregate", "--json").stdout)
    assert float(row["energy"]) == document["rows"][0]["energy"]
    assert list(row)[-2:] == ["bond_force", "bond_force_error"]  # newer columns move no other


def test_a_table_that_cannot_be_written_is_an_error_with_its_path(results):
    done = results.run("aggregate", "-o", "absent/table.csv")
    assert done.returncode == 2
    assert done.stderr == "absent/table.csv: cannot be written: there is no folder absent\n"
    assert done.stdout == ""  # before any work


def test_a_dash_means_standard_output(results):
    done = results.run("aggregate", "-o", "-")
    assert (done.returncode, done.stderr) == (0, "")
    assert wrote(results)
    assert done.stdout == (results.cwd / "table.csv").read_text()
    assert not (results.cwd / "-").exists()
    both = results.run("aggregate", "--explain", "h2", "-o", "table.csv")
    assert (both.returncode, "choose one" in both.stderr) == (2, True)  # no file, and no word
    both = results.run("aggregate", "-o", "-", "--json")
    assert (both.returncode, both.stdout) == (2, "")
    assert both.stderr == "-o - and --json both want standard output; choose one\n"


def wrote(shell: Shell) -> bool:
    """A table in a file, to compare with."""
    return shell.run("aggregate", "-o", "table.csv").stderr == "wrote table.csv\n"


ELSEWHERE = "belongs to runs; write it elsewhere"


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("h.toml", "exists and is no table of vmcjob; remove it, or write to another file"),
        ("runs", "is a directory; name a file in it"),
        (
            "runs/h2-0000000000/spec.toml",
            "h2-0000000000 belongs to runs; write it elsewhere",
        ),
        ("runs/h2-0000000000/new.csv", "h2-0000000000 belongs to runs; write it elsewhere"),
        (
            "runs/h2-0000000000/run.zarr/zarr.json",
            "h2-0000000000 belongs to runs; write it elsewhere",
        ),
        ("runs/.local/queue.lock", ".local belongs to runs; write it elsewhere"),
    ],
)
def test_a_table_overwrites_nothing_but_tables(results, path, sentence):
    target = results.cwd / path
    before = target.read_bytes() if target.is_file() else None
    done = results.run("aggregate", "-o", path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{path}: {sentence}\n"
    assert (target.read_bytes() if target.is_file() else None) == before


@pytest.mark.parametrize("name", ["out.json", "out.xlsx", "table.csv.gz"])
def test_a_table_is_what_its_name_says_or_is_not_made(results, name):
    """Nobody wants CSV in a file that is called JSON."""
    done = results.run("aggregate", "-o", name)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"{name}: tables are .csv, .parquet or .nc; name it so, or - for CSV on standard output, "
        "where --json prints JSON\n"
    )
    assert not (results.cwd / name).exists()
    assert results.run("aggregate", "-o", "TABLE.CSV").stderr == "wrote TABLE.CSV\n"


def test_a_table_may_replace_a_table_and_go_through_a_link(results):
    assert wrote(results)
    before = (results.cwd / "table.csv").read_text()
    (results.cwd / "table.csv").write_text(before.splitlines()[0] + "\n")
    (results.cwd / "link.csv").symlink_to("table.csv")
    assert results.run("aggregate", "-o", "link.csv").stderr == "wrote link.csv\n"
    assert (results.cwd / "link.csv").is_symlink()
    assert (results.cwd / "table.csv").read_text() == before


def test_without_runs_there_is_an_empty_table(shell):
    done = shell.run("aggregate", "--json")
    assert done.returncode == 4  # as of `plot` and `report`
    assert "there is nothing to aggregate" in done.stderr
    assert json.loads(done.stdout) == {
        "schema_version": 1,
        "rows": [],
        "excluded": [],
        "contained": [],
    }


def test_energies_add_up_with_their_errors(results: Shell) -> None:
    """Half of a row less the row is minus half of it: a name counts once, whatever its factors."""
    name = "0.5*h2 R=1.4 - h2 R=1.4"
    document = json.loads(results.run("aggregate", "--json", "--unbalanced", "--diff", name).stdout)
    (row,), (found,) = document["rows"], document["differences"]
    assert found["sum"] == name
    assert found["energy"] == pytest.approx(-0.5 * row["energy"])
    assert found["error"] == pytest.approx(0.5 * row["error"])
    lines = results.run("aggregate", "--unbalanced", "--diff", name).stdout.splitlines()
    assert lines[2] == ""
    assert lines[3].split() == ["sum", "energy", "verdict"]
    assert lines[4].startswith(f"{name}  0.58")
    assert lines[4].endswith(f"  {found['verdict']}")
    assert found["verdict"] == row["verdict"] == "converged"
    assert "differences" not in json.loads(results.run("aggregate", "--json").stdout)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("2*", "expected a sum like"),
        ("li", "no energy of li"),
        (
            "2*h2 R=1.4",
            "'2*h2 R=1.4' does not balance: 4 H against 0, 4 electrons against 0; "
            "--unbalanced adds it up all the same",
        ),
    ],
)
def test_a_sum_that_cannot_be_made_is_refused(results: Shell, text: str, words: str) -> None:
    """With what is wrong with it."""
    for run in list_runs(results.runs):
        run.write_spec_text(dump_spec(parse_spec(WITH_REFERENCE, "h2.toml").points[0].spec))
    done = results.run("aggregate", "--diff", text)
    assert done.returncode == 2
    assert done.stderr.startswith("--diff: ")
    assert words in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(("unit", "factor"), [("eV", 27.2114), ("cm-1", 219474.63)])
def test_the_table_is_shown_in_the_unit_of_choice(results: Shell, unit: str, factor: float) -> None:
    """Programs read hartree all the same."""
    header, line = results.run("aggregate", "--unit", unit).stdout.splitlines()
    assert f"energy, {unit}" in header
    shown = float(line[header.index("energy") :].split("(")[0])
    hartree = json.loads(results.run("aggregate", "--unit", unit, "--json").stdout)["rows"][0]
    assert shown == pytest.approx(factor * hartree["energy"], rel=1e-3)


def test_runs_whose_spec_cannot_be_read_are_not_converged(results: Shell) -> None:
    """Catches facts that are dropped without a word: spin and walkers then are not judged."""
    for run in list_runs(results.runs):
        run.write_spec_text('name = "h2"\n')
    (row,) = json.loads(results.run("aggregate", "--json").stdout)["rows"]
    assert row["verdict"] == "not yet"
    assert "its spec cannot be read: " in row["why"]
