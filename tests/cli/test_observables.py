"""aggregate --observables, as users type it."""

import json
import shutil
from collections.abc import Callable

import numpy as np
import pytest

from tests.cli.shell import Shell, finish
from tests.runs import make_run, spec_text
from vmcjob.columns import Axis, Column
from vmcjob.observables import Subject, columns_of
from vmcjob.store import Checkpoint, Commit, Layout, RunStore
from vmcjob.store.layout import SERIES

N_STEPS = 400
STRANGER = Column("bohr", "what a plugin measured", (Axis("xyz", 3),))
COLUMNS = columns_of(["components", "density"]) | {"stranger": STRANGER}
LEVELS = {"kinetic": 1.2, "v_ee": 1.3, "v_en": -3.7, "stranger": 5.0}
EXACT = {"v_nn": 0.0}  # as of an atom


Made = Callable[[str, tuple[int, ...], np.random.Generator], np.ndarray]
"""Values of a column, by its name and the shape of all rows."""


def noisy(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """White noise of spread 0.1 about the column's level."""
    noise = 0.1 * (name not in EXACT) * rng.normal(size=shape)
    return EXACT.get(name, LEVELS.get(name, 0.0)) + noise


@pytest.fixture
def measured(shell: Shell) -> Shell:
    """Two finished runs, each an observation in every second step."""
    return fill(shell, COLUMNS, noisy)


def fill(shell: Shell, columns: dict[str, Column], made: Made) -> Shell:
    """Two finished runs with these columns, in every second step."""
    for seed in range(2):
        run = finish(make_run(shell.runs, f"h2-000000000{seed}", spec_text(), seed=seed))
        shutil.rmtree(run.store_path, ignore_errors=True)
        layout = Layout(
            n_train=N_STEPS,
            n_evaluate=N_STEPS,
            n_walkers=2,
            n_electrons=2,
            n_snapshots=0,
            observed=columns,
            observe_every=2,
        )
        store = RunStore.create(
            run.store_path, run_id=run.path.name, spec_text="", provenance={}, layout=layout
        )
        rng, ones = np.random.default_rng(seed), np.ones(N_STEPS)
        energies = {"energy": -1.17 + 0.02 * rng.normal(size=N_STEPS), "variance": 8e-4 * ones}
        quiet = 0.002 * np.random.default_rng(9).normal(size=N_STEPS)
        at_rest = {"energy": -1.17 + quiet, "variance": 8e-4 * ones}
        store.commit(
            Commit(
                checkpoint=Checkpoint("evaluate", N_STEPS, {}),
                train=dict.fromkeys(SERIES["train"], ones) | at_rest,
                evaluate=dict.fromkeys(SERIES["evaluate"], ones) | energies | {"s2": 0.0 * ones},
                observed={
                    name: made(name, (N_STEPS // 2, *column.shape), rng)
                    for name, column in columns.items()
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


def test_forces_have_a_column_and_contradictions_a_note(shell: Shell) -> None:
    """Both nuclei are driven apart by 0.2 hartree/bohr; one form finds 0.1 for one of them."""

    def made(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        if name == "force_nuclei":
            return np.broadcast_to([[0.0, 0.0, 0.0], [0.0, 0.0, 1.4]], shape)
        if name != "force_local":
            return np.zeros(shape)
        force = np.zeros(shape[1:])
        force[0, 2], force[1, 2] = (-0.2, -0.1), (0.2, 0.2)
        return force + 0.01 * rng.normal(size=shape)

    done = fill(shell, columns_of(["forces"], Subject(n_nuclei=2)), made).run("aggregate")
    head, row = done.stdout.splitlines()[:2]
    assert "-dE/dR, Ha/bohr" in head
    assert " 0.200" in row or " 0.199" in row
    assert "its forces by the warp and by the gradient alone differ by" in row
    assert "its forces do not add up to zero but to" in row
    (found,) = json.loads(shell.run("aggregate", "--json").stdout)["rows"]
    assert found["bond_force"] == pytest.approx(0.2, abs=0.003)
    assert found["verdict"] == "converged"
    assert found["bond_force_error"] == pytest.approx(0.01 / 2**0.5 / 400**0.5, rel=0.4)


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
