"""Adapted damping: on hydrogen, where L is a parabola, and on one and two devices."""

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from scipy.special import gammaincinv

from tests.vmc.test_kfac import (
    HELIUM,
    NARROW,
    REPOSITORY,
    make_helium,
    make_kfac,
    random_batch,
)
from tests.wavefunctions import LocalEnergy, make_local_energy
from vmcjob.run.calculation import build
from vmcjob.run.rollback import FIRST_TRY, RetryPolicy
from vmcjob.run.state import from_arrays, to_arrays
from vmcjob.spec import parse_spec
from vmcjob.vmc import devices
from vmcjob.vmc.contracts import Batch, LocalEnergies, LogPsi, Params
from vmcjob.vmc.damping import Adaptation, Trial
from vmcjob.vmc.energy import Clipping
from vmcjob.vmc.kfac import Kfac
from vmcjob.vmc.loop import iterate
from vmcjob.vmc.schedule import Decay

ALPHA = 1.5  # of the trial function exp(−α r) of hydrogen, whose energy is α²/2 − α
DAMPING = 0.1
CURVATURE = 0.5 / (6 / ALPHA**2 + DAMPING)  # κ: ½ E″ over F + λ, F = 2 ⟨r²⟩


def log_psi(params: Params, r: Array) -> Array:
    return -params["alpha"] * jnp.linalg.norm(r[0])


def local_energy(params: Params, r: Array) -> Array:
    alpha = params["alpha"]
    return -0.5 * alpha**2 + (alpha - 1.0) / jnp.linalg.norm(r[0])


def batch_of(local_energy: LocalEnergy) -> LocalEnergies:
    """Local energies of all walkers from those of one."""
    return jax.vmap(local_energy, (None, 0))


def walkers_of_hydrogen(n: int = 4096) -> np.ndarray:
    """Not drawn, but one in the middle of each n-th of |ψ|²: r² exp(−2 α r)."""
    radius = gammaincinv(3.0, (np.arange(n) + 0.5) / n) / (2.0 * ALPHA)
    return radius[:, None, None] * np.array([[[0.0, 0.6, 0.8]]])


def make_adaptation(**changes: Any) -> Adaptation:
    options: dict[str, Any] = {
        "log_psi": log_psi,
        "local_energies": batch_of(local_energy),
        "clipping": Clipping(1e9, "mean"),
        "initial": DAMPING,
        "minimum": 1e-3 * DAMPING,
        "maximum": 1e3 * DAMPING,
        "period": 1,
        "decay": 0.9,
        "l2": 0.0,
    }
    return Adaptation(**(options | changes))


def measured(log_psi: LogPsi, params: Params, r: Array, e_loc: Array, step: Array) -> Batch:
    """Walkers with their log|ψ| and clipped local energies; deviations do not matter here."""
    log_abs = jax.vmap(log_psi, (None, 0))(params, r)
    return Batch(r, log_abs, e_loc, jnp.zeros_like(e_loc), step)


class Judgement(NamedTuple):
    """Of a step of which nothing was expected."""

    reduction: Array
    damping: Array  # of the next step


def judge(adaptation: Adaptation, params: Params, delta: Array, r: np.ndarray) -> Judgement:
    """What a step is worth, by walkers on all devices."""

    def judge_here(r: Array, params: Params) -> Judgement:
        e_loc = adaptation.local_energies(params, r)
        clipped, _ = adaptation.clipping.apply(e_loc)
        batch = measured(adaptation.log_psi, params, r, clipped, jnp.asarray(0))
        trial = Trial(params, delta, batch, jnp.zeros(()))
        damping = adaptation.after(jnp.asarray(DAMPING), trial)
        return Judgement(adaptation.reduction(trial), damping)

    return devices.unreplicate(devices.pmap(judge_here)(devices.shard(r), params))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("delta", [-0.3, -0.01, 0.2])
def test_walkers_of_one_wave_function_tell_the_energy_of_the_next(delta: float) -> None:
    """−½ ΔE − ½ l Δα², by reweighting; without weights, less than half of −ΔE would be seen.

    From 4096 walkers, of which the outermost stands for all beyond: to within 1 %.
    """
    l2, params = 0.3, {"alpha": jnp.asarray(ALPHA)}
    before, after = (
        0.5 * (0.5 * alpha**2 - alpha) + 0.5 * l2 * alpha**2 for alpha in (ALPHA, ALPHA + delta)
    )
    found = judge(make_adaptation(l2=l2), params, jnp.array([delta]), walkers_of_hydrogen())
    np.testing.assert_allclose(found.reduction, before - after, rtol=0.01)


def damping_after_a_step(alpha: float = ALPHA, **changes: Any) -> float:
    """K-FAC's λ after one step from exp(−α r)."""
    options: dict[str, Any] = {"damping": make_adaptation()}
    optimizer = make_kfac(log_psi, 1, **(options | changes))
    params, r = {"alpha": jnp.asarray(alpha)}, walkers_of_hydrogen()
    e_loc = -0.5 * alpha**2 + (alpha - 1.0) / np.linalg.norm(r[:, 0], axis=-1)
    state = devices.replicate((params, jax.jit(optimizer.init)(params)))
    mapped = devices.pmap(lambda given, step: optimizer.update(*given, step=step)[1].damping)
    return float(devices.unreplicate(mapped((*state, devices.shard(r), devices.shard(e_loc)), 0)))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("ratio", "factor"), [(1.9, 0.9), (1.0, 0.9), (0.8, 0.9), (0.7, 1), (0.3, 1), (0.2, 1 / 0.9)]
)
def test_damping_falls_where_the_model_is_right_and_rises_where_the_step_was_too_long(
    ratio: float, factor: float
) -> None:
    """ρ = 2 − η κ on a parabola, κ being its curvature over that of the model at η = 1.

    At η κ = 1 the model is the parabola, beyond 2 the step is uphill. A model without λ would be
    4 % off, one with η = 1 or half as large by far more; ρ is within 0.05 of its thresholds.
    """
    rate = Decay((2.0 - ratio) / CURVATURE, math.inf)
    found = damping_after_a_step(learning_rate=rate)
    np.testing.assert_allclose(found, factor * DAMPING, rtol=1e-12)


@pytest.mark.usefixtures("float64")
def test_a_step_that_is_held_back_is_judged_by_how_far_it_went() -> None:
    """A tenth of a step that would have gone uphill does what the model expects of it."""
    rate = Decay(3.0 / CURVATURE, math.inf)
    assert damping_after_a_step(learning_rate=rate) > DAMPING
    square = 0.25**2 / (6 / ALPHA**2 + DAMPING)  # dᵀ g
    limit = (0.3 / CURVATURE) ** 2 * square
    assert damping_after_a_step(learning_rate=rate, norm_constraint=limit) < DAMPING


@pytest.mark.usefixtures("float64")
def test_damping_stays_between_its_limits_and_moves_for_a_reason() -> None:
    """No gradient, as of an eigenstate, is no reason; energies that are not finite are one."""
    good, bad = (Decay(x / CURVATURE, math.inf) for x in (1.0, 1.9))
    narrow = make_adaptation(minimum=0.95 * DAMPING, maximum=1.05 * DAMPING)
    found = damping_after_a_step(learning_rate=good, damping=narrow)
    np.testing.assert_allclose(found, 0.95 * DAMPING)
    found = damping_after_a_step(learning_rate=bad, damping=narrow)
    np.testing.assert_allclose(found, 1.05 * DAMPING)
    assert damping_after_a_step(alpha=1.0) == DAMPING
    nowhere = batch_of(lambda params, r: jnp.nan * params["alpha"])
    broken = make_adaptation(local_energies=nowhere)
    assert damping_after_a_step(learning_rate=good, damping=broken) > DAMPING


@pytest.mark.usefixtures("float64")
def test_damping_is_adapted_every_so_many_steps() -> None:
    """By as much as if it were adapted at every step: ω^T."""
    adaptation = make_adaptation(period=3)
    r, params = walkers_of_hydrogen(8), {"alpha": jnp.asarray(ALPHA)}

    def after(given: tuple[Array, Array], step: Array) -> Array:
        r, damping = given
        e_loc = jax.vmap(local_energy, (None, 0))(params, r)
        # Nothing was expected, and less than that came of it.
        batch = measured(log_psi, params, r, e_loc, step)
        return adaptation.after(damping, Trial(params, jnp.array([1.0]), batch, jnp.zeros(())))

    mapped, damping, found = devices.pmap(after), devices.replicate(np.array(DAMPING)), []
    for step in range(7):
        damping = mapped((devices.shard(r), damping), jnp.asarray(step))
        found.append(float(devices.unreplicate(damping)) / DAMPING)
    once, twice = 0.9**-3, 0.9**-6
    np.testing.assert_allclose(found, [1, 1, once, once, once, twice, twice])


def test_a_spec_says_how_to_adapt_and_how_to_sample() -> None:
    """All of it arrives; a run that had to go back draws other samples, and takes fewer walkers."""
    (point,) = parse_spec(
        'name = "he"\nsystem.atoms = [["He", 0, 0, 0]]\nseed = 3\n[optimizer]\nkind = "kfac"\n'
        'estimation_mode = "fisher_gradients"\ndamping = 0.01\ndamping_adaptation_period = 7\n'
        "damping_adaptation_decay = 0.8\nl2 = 0.5\nclip = 4.0\n",
        "job.toml",
    ).points
    vmc, again = (build(point.spec, policy=policy).vmc for policy in (FIRST_TRY, RetryPolicy(1, 2)))
    first, second = vmc.optimizer, again.optimizer
    assert isinstance(first, Kfac)
    assert isinstance(second, Kfac)
    assert (first.estimation_mode, first.seed) == ("fisher_gradients", 3)
    assert first.stream != second.stream
    damping, smaller = first.damping, second.damping
    assert isinstance(damping, Adaptation)
    assert isinstance(smaller, Adaptation)
    assert (damping.initial, damping.minimum, damping.maximum) == (0.01, 1e-4, 1.0)
    assert (damping.period, damping.decay, damping.l2) == (7, 0.8, 0.5)
    assert damping.clipping == vmc.rule.clipping == Clipping(4.0, "median")


@pytest.mark.full_matrix  # kfac-adapted in test_optimizers_conformance.py
@pytest.mark.slow
def test_samples_and_an_adapted_damping_are_resumed_bit_for_bit() -> None:
    """The samples are drawn anew from seed and step, and λ is in the checkpoint."""
    log_psi = NARROW.log_psi
    adaptation = make_adaptation(
        log_psi=log_psi,
        local_energies=batch_of(make_local_energy(log_psi, HELIUM)),
        initial=1e-3,
        period=2,
    )
    changes = {"damping": adaptation, "estimation_mode": "fisher_gradients"}
    vmc, state = make_helium(**changes)
    checkpoints = [to_arrays(done.state) for done in iterate(vmc.train_step(), state, 0, 5)]
    dampings = [float(arrays["optimizer/damping"]) for arrays in checkpoints]
    assert len(set(dampings)) > 1
    vmc, like = make_helium(**changes)
    for done in iterate(vmc.train_step(), from_arrays(checkpoints[2], like), 3, 5):
        state = done.state
    resumed = to_arrays(state)
    assert resumed.keys() == checkpoints[4].keys()
    for name, array in checkpoints[4].items():
        np.testing.assert_array_equal(resumed[name], array, err_msg=name)


@pytest.mark.slow
@pytest.mark.full_matrix  # by its updates in test_optimizers_conformance.py, kfac-adapted
def test_one_and_two_devices_judge_alike(tmp_path: Path) -> None:
    """Energies, weights and the clipping's window are those of all walkers."""
    one, two = (_judged_in_new_process(n, tmp_path) for n in (1, 2))
    assert one[0] != 0.0
    assert one[1] != DAMPING
    np.testing.assert_allclose(two, one, rtol=1e-10)


def judge_helium() -> np.ndarray:
    """What a step of helium from random walkers brings, and what that does to λ."""
    log_psi = NARROW.log_psi
    adaptation = make_adaptation(
        log_psi=log_psi,
        local_energies=batch_of(make_local_energy(log_psi, HELIUM)),
        clipping=Clipping(5.0, "median"),
        l2=0.1,
    )
    r = random_batch(0).r
    params = jax.jit(NARROW.init)(jax.random.key(0), r[0])
    n_params = sum(leaf.size for leaf in jax.tree.leaves(params))
    delta = jnp.asarray(0.1 * np.random.default_rng(0).standard_normal(n_params))
    return np.stack(judge(adaptation, params, delta, r))


def _judged_in_new_process(n_devices: int, folder: Path) -> np.ndarray:
    """`judge_helium` in a process with so many CPU devices."""
    environment = os.environ | {
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={n_devices}",
        "JAX_ENABLE_X64": "1",
        "PYTHONPATH": str(REPOSITORY),
    }
    code = (
        "import jax, numpy, tests.vmc.test_damping as t\n"
        f"assert jax.local_device_count() == {n_devices}\n"
        f"numpy.save({str(folder / 'out.npy')!r}, t.judge_helium())\n"
    )
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=200)
    return np.load(folder / "out.npy")
