"""Which parameters are evaluated: the last ones, their average, or the better of both."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.matrix import rest
from tests.run import fake
from tests.run.harness import HELIUM, PROGRAM, finish, make_run, start
from vmcjob.run.comparison import Measured, better, choose, measure, n_steps
from vmcjob.spec import parse_spec
from vmcjob.store import RunStore


def test_a_lower_energy_decides_where_it_is_certain() -> None:
    """And the variance, which is known much better, where it is not."""
    high, low = Measured(-1.10, 1e-3, 0.1), Measured(-1.12, 1e-3, 0.2)
    assert better({"last": high, "average": low}) == "average"
    close = Measured(-1.119, 1e-3, 0.1)
    assert better({"last": low, "average": close}) == "average"
    assert better({"last": close, "average": low}) == "last"


def steps_with(energies: np.ndarray, variance: float) -> Any:
    """Reports of steps with these energies, in hartree."""
    return [SimpleNamespace(energy=energy, variance=variance) for energy in energies]


def test_the_first_quarter_of_a_measurement_does_not_count() -> None:
    """Walkers come from another wave function."""
    energies = np.concatenate([np.full(25, 5.0), np.tile([-1.0, -1.1], 38)[:75]])
    found = measure({"last": steps_with(energies, 0.3)})["last"]
    assert found.energy == pytest.approx(-1.05, abs=1e-3)
    assert found.variance == 0.3


def test_a_notebook_chooses_like_a_job() -> None:
    """The lower energy, 100 errors away, although its variance is higher; without the first steps.

    Catches a rule of its own for `vmc.run`, like the lower variance whatever the energies are.
    """
    wobble = np.tile([1e-4, -1e-4], 20)
    high, low = np.full(40, -1.10) + wobble, np.full(40, -1.12) + wobble
    low[:10] = 5.0
    assert choose({"last": steps_with(high, 0.1), "average": steps_with(low, 0.2)}) == "average"


@pytest.mark.parametrize(("parameters", "planned"), [("best", 80), ("average", 0), ("last", 0)])
def test_only_a_choice_costs_steps(parameters: str, planned: int) -> None:
    """As many for any length of the evaluation, or a longer run would not have the same bits."""
    text = HELIUM.replace("[evaluate]", f'[evaluate]\nparameters = "{parameters}"')
    assert n_steps(parse_spec(text, "test.toml").points[0].spec) == planned


@pytest.mark.slow
@pytest.mark.parametrize("program", [fake.PROGRAM, *rest((PROGRAM,))], ids=["fake", "real"])
def test_what_is_chosen_is_evaluated_and_recorded(program: tuple[str, ...], tmp_path: Path) -> None:
    """Whatever it is: the parameters of the result are those of the candidate that was named."""
    found, chosen = {}, ""
    for parameters in ("best", "average", "last"):
        text = HELIUM.replace("[evaluate]", f'[evaluate]\nparameters = "{parameters}"')
        run = make_run(tmp_path / parameters, text)
        code, log = finish(start(run, program=program))
        assert code == 0, log
        store = RunStore.open(run.store_path)
        restored = store.checkpoint()
        assert restored is not None
        arrays = restored.checkpoint.arrays
        found[parameters] = {k: v for k, v in arrays.items() if k.startswith("params/")}
        assert ("evaluated" in store.attrs) == (parameters == "best")
        if parameters == "best":
            chosen = store.attrs["evaluated"]["chosen"]
            first_digit = "3" if program is fake.PROGRAM else "-2"
            assert f"evaluates the {chosen} parameters: last {first_digit}" in log
            assert set(store.attrs["evaluated"]) == {"chosen", "last", "average"}
    for name, values in found["best"].items():
        np.testing.assert_array_equal(values, found[chosen][name], err_msg=name)
    assert any((values != found["average"][name]).any() for name, values in found["last"].items())


def test_nothing_measured_leaves_the_last_parameters() -> None:
    """The average would be evaluated without anybody having compared it."""
    assert choose({"last": [], "average": []}) == "last"
