"""aggregate --observables, as users type it."""

import json
import shutil

import numpy as np
import pytest

from tests.cli.shell import Shell, finish
from tests.runs import make_run
from vmcjob.columns import Axis, Column
from vmcjob.observables import columns_of
from vmcjob.store import Checkpoint, Commit, Layout, RunStore
from vmcjob.store.layout import SERIES

N_STEPS = 400
STRANGER = Column("bohr", "what a plugin measured", (Axis("xyz", 3),))
COLUMNS = columns_of(["components", "density"]) | {"stranger": STRANGER}
LEVELS = {"kinetic": 1.2, "v_ee": 1.3, "v_en": -3.7, "stranger": 5.0}
EXACT = {"v_nn": 0.0}  # as of an atom


@pytest.fixture
def measured(shell: Shell) -> Shell:
    """Two finished runs, each an observation in every second step, white noise of spread 0.1."""
    for seed in range(2):
        run = finish(make_run(shell.runs, f"h2-000000000{seed}", seed=seed))
        shutil.rmtree(run.store_path, ignore_errors=True)
        layout = Layout(
            n_train=0,
            n_evaluate=N_STEPS,
            n_walkers=2,
            n_electrons=2,
            n_snapshots=0,
            observed=COLUMNS,
            observe_every=2,
        )
        store = RunStore.create(
            run.store_path, run_id=run.path.name, spec_text="", provenance={}, layout=layout
        )
        rng, ones = np.random.default_rng(seed), np.ones(N_STEPS)
        energies = {"energy": -1.17 + 0.02 * rng.normal(size=N_STEPS), "variance": 0.04 * ones}
        store.commit(
            Commit(
                checkpoint=Checkpoint("evaluate", N_STEPS, {}),
                evaluate=dict.fromkeys(SERIES["evaluate"], ones) | energies,
                observed={
                    name: EXACT.get(name, LEVELS.get(name, 0.0))
                    + 0.1 * (name not in EXACT) * rng.normal(size=(N_STEPS // 2, *column.shape))
                    for name, column in COLUMNS.items()
                },
            )
        )
    return shell


def test_a_table_shows_numbers_and_small_arrays(measured: Shell) -> None:
    """With errors of two runs pooled; a virial ratio of −(1.3 − 3.7) / 1.2 = 2."""
    done = measured.run("aggregate", "--observables")
    assert done.returncode == 0, done.stderr
    lines = {line.split()[2]: line for line in done.stdout.splitlines() if "h2 R=" in line[:8]}
    assert {"kinetic", "potential", "virial", "stranger[0]", "stranger[2]"} <= lines.keys()
    assert "2.0" in lines["virial"] or "1.9" in lines["virial"]
    assert "hartree" in lines["kinetic"]
    assert "too large for a table, in --json: " in done.stderr
    assert "Warning" not in done.stderr
    assert lines["v_nn"].split()[3:5] == ["0.000000(0)", "hartree"]
    assert "observable" not in measured.run("aggregate").stdout
    _, shown = measured.run_on_terminal("aggregate", "--observables", n_columns=80)
    assert "attraction of" in shown  # words are cut before they are left out


def test_json_has_arrays_with_their_errors_and_axes(measured: Shell) -> None:
    """Two runs of 200 observations: the error of a mean is 0.1 / √400 = 0.005."""
    document = json.loads(measured.run("aggregate", "--observables", "--json").stdout)
    found = {item["name"]: item for item in document["observables"]}
    kinetic, density, stranger = (found[n] for n in ("kinetic", "density_radial", "stranger"))
    assert kinetic["mean"] == pytest.approx(1.2, abs=0.02)
    assert kinetic["error"] == [pytest.approx(0.005, rel=0.4)]
    assert (found["v_nn"]["mean"], found["v_nn"]["error"]) == (0.0, [0.0])
    assert found["virial"]["mean"] == pytest.approx(2.0, abs=0.05)
    assert (density["axes"][0]["name"], len(density["mean"])) == ("radius", 101)
    np.testing.assert_allclose(stranger["mean"], [5.0] * 3, atol=0.03)
    assert (stranger["units"], stranger["long_name"]) == ("bohr", "what a plugin measured")


@pytest.mark.slow
def test_a_run_that_has_measured_has_two_pictures(measured: Shell) -> None:
    """The second one's text has the numbers, of the same digits as the table."""
    done = measured.run("plot", "h2-0000000000", "-o", "h2.svg")
    assert done.returncode == 0, done.stderr
    assert "wrote h2.svg\nwrote h2-observables.svg\n" in done.stderr
    drawn = (measured.cwd / "h2-observables.svg").read_text()
    assert "electrons by z" in drawn
    assert "repulsion of nuclei = 0.000000(0) hartree" in drawn
    assert "v_nn" not in drawn


@pytest.mark.slow
def test_a_report_has_them_pooled_and_of_each_run(measured: Shell) -> None:
    """In a table, and in a picture for each of the two runs."""
    done = measured.run("report", "-o", "report.html")
    text = (measured.cwd / "report.html").read_text()
    assert "<h2>Observables</h2>" in text, done.stderr
    assert '<td data-title="observable">v_nn</td><td data-title="value">0.000000(0)</td>' in text
    assert text.count("electrons by z") == 2
    assert text.count("<figure>") == 4
