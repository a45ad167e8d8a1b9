"""`vmcjob.vmc` by itself: the program of the notebook page, and the public names."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.pages import block
from vmcjob import vmc
from vmcjob.run import comparison
from vmcjob.vmc import devices, phases
from vmcjob.vmc.contracts import LoopState

EXACT = -1.1745  # hartree
MAX_LINES = 20
NOTHING: Any = None


@pytest.mark.slow
def test_the_program_of_the_page_finds_the_energy_of_h2() -> None:
    """In twenty lines, within 3 mHa, and without jobs, specs and stores."""
    code = block("python", "library").code
    assert len(code.splitlines()) <= MAX_LINES
    assert re.findall(r"^(?:from|import) .*", code, re.MULTILINE) == ["from vmcjob import vmc"]
    names = {}
    exec(code, names)
    energies = names["energies"]
    assert sum(energies) / len(energies) == pytest.approx(EXACT, abs=3e-3)


def test_what_is_public_is_documented() -> None:
    """Each class and function says what it is; aliases of types do so where they are defined."""
    for name in vmc.__all__:
        public = getattr(vmc, name)
        assert public.__doc__ or name in {"LogPsi", "SignedWaveFunction"}, name


def hydrogen() -> vmc.Calculation:
    """An atom; nothing of it is compiled before its first step."""
    system = vmc.System(nuclei=((0.0, 0.0, 0.0),), charges=(1,), n_up=1, n_down=0)
    ansatz = vmc.WaveFunction(vmc.SlaterOrbitals(system, 1, True, 1))
    method = vmc.Vmc(
        psi=vmc.make_psi(ansatz),
        hamiltonian=vmc.molecular_hamiltonian(),
        nuclei=vmc.nuclei_of(system),
        make_optimizer=lambda log_psi, _: vmc.Spring(log_psi, 1e-3, vmc.Memory(0.0)),
        rule=vmc.UpdateRule(vmc.Decay(0.1, 100.0)),
        seed=0,
        moves=vmc.Moves(2),
        target_acceptance=0.5,
        average_from=3,
    )
    return vmc.Calculation(method, system, ansatz, n_walkers=16, width=0.5)


def test_a_name_that_is_no_phase_is_refused() -> None:
    """Before anything is computed; a slip of the pen would leave a phase out."""
    with pytest.raises(ValueError, match=r"evalute.*no phases; there are pretrain, warmup, train"):
        next(vmc.run(hydrogen(), {"evalute": 1}))
    with pytest.raises(ValueError, match="compare needs `choose`"):
        next(vmc.run(hydrogen(), {"compare": 1}))


def test_a_course_that_goes_on_from_a_step_does_not_take_it_again() -> None:
    """The row of the step would be written twice."""
    taken = vmc.Event(
        vmc.Phase.TRAIN, 3, state=LoopState(NOTHING, NOTHING, NOTHING, NOTHING), on_devices=None
    )
    course = list(phases.course(hydrogen(), {"train": 3}, taken))
    assert (course[0].phase, course[0].step) == ("train", 3)
    assert not any(isinstance(one, vmc.Event) for one in course)


def test_without_a_comparison_the_last_parameters_are_evaluated() -> None:
    """The average comes first by name; nobody has measured that it is better."""
    last, average = (devices.replicate({"w": jnp.full(2, x)}) for x in (1.0, 2.0))
    state = LoopState(last, NOTHING, NOTHING, average)
    start = phases.Position(vmc.Phase.COMPARE, 0, state)
    *_, end = phases.course(hydrogen(), {}, start, comparison.choose)
    np.testing.assert_array_equal(devices.unreplicate(end.state.params)["w"], [1.0, 1.0])


@pytest.mark.slow
def test_phases_come_in_their_order_and_both_candidates_are_compared() -> None:
    """Each step once, counted within its phase; what is chosen is asked of the caller."""
    asked = []

    def choose(measured) -> str:
        asked.append({name: len(infos) for name, infos in measured.items()})
        return "average"

    steps = {"evaluate": 2, "compare": 4, "train": 5, "warmup": 1}
    seen, averages, evaluated = [], [], []
    for event in vmc.run(hydrogen(), steps, choose=choose):
        seen.append((event.phase.value, event.step))
        if event.phase == "train":
            averages.append(jax.tree.map(np.array, event.state.average))
        if event.phase == "evaluate":
            evaluated.append(jax.tree.map(np.array, event.state.params))
    expected = [("warmup", 1), *(("train", k) for k in range(1, 6))]
    expected += [*(("compare", k) for k in range(1, 5)), ("evaluate", 1), ("evaluate", 2)]
    assert seen == expected
    assert [list(one.items()) for one in asked] == [[("last", 2), ("average", 2)]]
    jax.tree.map(np.testing.assert_array_equal, evaluated[-1], averages[-1])
