"""What every ansatz is, whatever its orbitals: antisymmetric, at its cusps, anywhere in space."""

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.ansatze import ANSATZE
from tests.matrix import rest
from tests.wavefunctions import Clamped, make_local_energy
from vmcjob.run.calculation import make_ansatz
from vmcjob.spec import FermiNet as FermiNetOptions
from vmcjob.vmc.ansatz import WaveFunction, make_psi
from vmcjob.vmc.ansatz.determinants import Stacks, sum_of_determinants
from vmcjob.vmc.ansatz.distances import rescaled
from vmcjob.vmc.ansatz.envelopes import log_slater_exponents, shell
from vmcjob.vmc.ansatz.jastrow import CuspJastrow
from vmcjob.vmc.contracts import LogPsi, Nuclei, Params
from vmcjob.vmc.nucleus import Core, Gaussian
from vmcjob.vmc.system import System, nuclei_of
from vmcjob.vmc.wavefunction import ratio

pytestmark = pytest.mark.usefixtures("float64")
CARBON_LIKE = System(((0.0, 0.0, 0.0), (0.0, 0.5, 1.0)), (4, 1), 3, 2)
HELIUM_CORE = Core(2, (Gaussian(1, 3.0, 4.0),), ((Gaussian(2, 2.0, 1.0),),))
WITH_CORE = System(CARBON_LIKE.nuclei, CARBON_LIKE.charges, 3, 2, (HELIUM_CORE, None))
DETERMINANTS = 3

every_ansatz = pytest.mark.parametrize("name", list(ANSATZE))
# Spins are exchanged, and phases made, of any orbitals in the same way.
an_ansatz = pytest.mark.parametrize("name", ["ferminet", *rest("psiformer", "slater-jastrow")])
# Blocks are made of any orbitals in the same way.
every_case = pytest.mark.parametrize(
    ("name", "full"),
    [pytest.param(name, True, id=f"{name}-full") for name in ANSATZE]
    + [
        pytest.param(
            name,
            False,
            id=f"{name}-blocks",
            marks=() if name == "slater-jastrow" else pytest.mark.full_matrix,
        )
        for name in ANSATZE
    ],
)


class Case(NamedTuple):
    """A small wave function, parameters without any special value, and one walker."""

    net: Clamped
    log_psi: LogPsi
    orbitals: Callable[[Params, jax.Array], Stacks]
    params: Params
    r: jax.Array


@cache
def make(name: str, full: bool = True, system: System = CARBON_LIKE) -> Case:
    """One compilation serves all tests that ask for the same."""
    net = ANSATZE[name](system, DETERMINANTS, full)
    r = jax.random.normal(jax.random.key(1), (system.n_electrons, 3))
    params = any_params(jax.eval_shape(net.init, jax.random.key(0), r))
    return Case(net, jax.jit(net.log_psi), jax.jit(net.orbitals), params, r)


def any_params(shapes: Params) -> Params:
    """Random parameters: none at the zeros and ones at which terms of an ansatz begin."""
    rng = np.random.default_rng(2)

    def fill(path, leaf: jax.ShapeDtypeStruct) -> jax.Array:
        is_length = path[-1].key == "alpha"  # positive, all others are of any sign
        return jnp.asarray(rng.normal(float(is_length), 0.3 - 0.2 * is_length, leaf.shape))

    return jax.tree_util.tree_map_with_path(fill, shapes)


def psi_without_jastrow(stacks: Stacks) -> float:
    """Σ_k Π_s det Φ_sk, sign and all."""
    return float(np.prod([np.linalg.det(np.asarray(stack)) for stack in stacks], axis=0).sum())


@every_case
def test_permuting_like_spins_leaves_the_modulus_unchanged(name, full) -> None:
    """|ψ| is symmetric within a spin, Jastrow factor included."""
    _, log_psi, _, params, r = make(name, full)
    permuted = r[jnp.array([2, 0, 1, 4, 3])]
    np.testing.assert_allclose(log_psi(params, permuted), log_psi(params, r), rtol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("ferminet", True),
        ("slater-jastrow", False),
        *rest(("ferminet", False), ("psiformer", True), ("psiformer", False)),
        *rest(("slater-jastrow", True)),
    ],
)
def test_the_phase_is_the_sign_of_the_wave_function(name, full) -> None:
    """Against determinants by NumPy; and exchanging like spins turns it, as a ratio has it."""
    net, _, orbitals, params, r = make(name, full)
    swapped = r[jnp.array([1, 0, 2, 3, 4])]
    psi = jax.jit(net.psi)
    here, there = psi(params, r), psi(params, swapped)
    assert here.phase == np.sign(psi_without_jastrow(orbitals(params, r))) == -there.phase
    nuclei = nuclei_of(CARBON_LIKE)
    found = jax.jit(partial(ratio, make_psi(net.net)))(params, swapped, r, nuclei)
    np.testing.assert_allclose(found, -1.0, rtol=1e-10)


@pytest.mark.slow
@an_ansatz
def test_with_both_spins_exchanged_psi_is_symmetric_in_them(name) -> None:
    """A singlet, sign and all, which is no more than the sum of two values of the plain function.

    Catches a Jastrow factor that knows the spins apart, and a sum of moduli.
    """
    system = System(CARBON_LIKE.nuclei, CARBON_LIKE.charges, 2, 2)
    plain, _, _, params, r = make(name, True, system)
    assert isinstance(plain.net, WaveFunction)
    both = Clamped(plain.net.clone(exchanged=True), system)
    swapped = r[jnp.array([2, 3, 0, 1])]
    psi, psi_of_plain = jax.jit(both.psi), jax.jit(plain.psi)
    here, there = psi(params, r), psi(params, swapped)
    assert here.phase == there.phase
    np.testing.assert_allclose(here.log_abs, there.log_abs, rtol=1e-11)
    terms = [psi_of_plain(params, each) for each in (r, swapped)]
    wanted = sum(float(term.phase * jnp.exp(term.log_abs)) for term in terms)
    np.testing.assert_allclose(here.phase * jnp.exp(here.log_abs), wanted, rtol=1e-10)
    permuted = psi(params, r[jnp.array([1, 0, 2, 3])])
    assert permuted.phase == -here.phase
    np.testing.assert_allclose(permuted.log_abs, here.log_abs, rtol=1e-11)


@every_ansatz
def test_nuclei_are_arguments_that_can_be_derived_by(name) -> None:
    """Σ_I ∂/∂R_I + Σ_i ∂/∂r_i = 0: nothing changes when all is moved. Catches a constant nucleus.

    And charges count where a wave function knows them.
    """
    net, _, _, params, r = make(name)

    def log_psi(r: jax.Array, nuclei: Nuclei) -> jax.Array:
        return make_psi(net.net)(params, r, nuclei).log_abs

    by_r, by_nuclei = jax.jit(jax.grad(log_psi, (0, 1)))(r, nuclei_of(CARBON_LIKE))
    assert np.abs(by_nuclei.positions).min() > 1e-6
    moved = by_r.sum(axis=0) + by_nuclei.positions.sum(axis=0)
    np.testing.assert_allclose(moved, 0.0, atol=1e-10)
    assert (np.abs(by_nuclei.charges).min() > 1e-6) == (name == "slater-jastrow")


@every_case
def test_the_sign_follows_the_parity_of_a_permutation(name, full) -> None:
    """The modulus alone would let a bosonic ansatz pass."""
    _, _, orbitals, params, r = make(name, full)
    before = psi_without_jastrow(orbitals(params, r))
    for order, sign in [([1, 0, 2, 3, 4], -1), ([1, 2, 0, 3, 4], 1), ([1, 0, 2, 4, 3], 1)]:
        after = psi_without_jastrow(orbitals(params, r[jnp.array(order)]))
        np.testing.assert_allclose(after, sign * before, rtol=1e-10)


@every_case
def test_orbitals_go_with_their_electrons(name, full) -> None:
    """Exchanging like spins exchanges rows, and changes nothing else of any matrix."""
    _, _, orbitals, params, r = make(name, full)
    order = [1, 0, 2, 4, 3]
    rows = [order] if full else [order[:3], [1, 0]]
    before, after = orbitals(params, r), orbitals(params, r[jnp.array(order)])
    for one, other, own in zip(before, after, rows, strict=True):
        np.testing.assert_allclose(other, np.asarray(one)[:, own], rtol=1e-10, atol=1e-13)


@every_case
def test_exchanging_unlike_spins_changes_the_modulus(name, full) -> None:
    """Catches an ansatz that is symmetric in everything, or blind to electrons or to spin."""
    _, log_psi, _, params, r = make(name, full)
    exchanged = r[jnp.array([3, 1, 2, 0, 4])]
    assert abs(log_psi(params, exchanged) - log_psi(params, r)) > 1e-3


@every_case
@pytest.mark.parametrize(("i", "j", "vanishes"), [(0, 1, True), (3, 4, True), (0, 3, False)])
def test_the_wave_function_vanishes_only_where_like_spins_meet(name, full, i, j, vanishes) -> None:
    """Pauli: antisymmetry puts a node where like spins meet, and none where unlike ones do."""
    _, log_psi, _, params, r = make(name, full)
    met = log_psi(params, r.at[i].set(r[j] + 1e-9))
    assert (met < log_psi(params, r) - 10.0) == vanishes


IONS = {
    "Be3+": (System(((0.0, 0.0, 0.0),), (4,), 0, 1), False),
    "H2-": (System(((0.0, 0.0, 0.0),), (1,), 3, 0), False),
    "HeH-": (System(((0.0, 0.0, 0.0), (0.0, 0.0, 9.0)), (1, 2), 2, 2), True),
}


@pytest.mark.parametrize(
    ("ion", "name"),
    [
        pytest.param(ion, name, marks=() if i == k else pytest.mark.full_matrix)
        for i, ion in enumerate(IONS)
        for k, name in enumerate(ANSATZE)
    ],
)
def test_any_charge_and_spin_has_a_finite_wave_function(ion, name) -> None:
    """Either spin may be empty, and an ion may have more electrons than its nuclei have charge."""
    system, full = IONS[ion]
    _, log_psi, _, params, r = make(name, full, system)
    assert np.isfinite(log_psi(params, r))


@every_ansatz
def test_a_lone_electron_has_a_finite_gradient(name) -> None:
    """Catches a distance between an electron and itself whose derivative is 0 / 0."""
    _, log_psi, _, params, r = make(name, True, System(((0.0, 0.0, 0.0),), (4,), 1, 0))
    gradients = jax.tree.leaves(jax.jit(jax.grad(log_psi))(params, r))
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    assert any(np.abs(gradient).max() > 0 for gradient in gradients if gradient.size)


@every_ansatz
def test_an_electron_at_a_nucleus_has_a_finite_wave_function(name) -> None:
    """Catches features that divide by a distance; derivatives do not exist there."""
    _, log_psi, _, params, r = make(name)
    assert np.isfinite(log_psi(params, r.at[0].set(0.0)))


@every_ansatz
def test_there_is_no_cusp_at_a_nucleus_with_a_core(name) -> None:
    """The mean of log|ψ| on both sides has no slope there: the potential is finite.

    Catches features, envelopes or a Jastrow factor with the distance itself.
    """
    _, log_psi, _, params, r = make(name, True, WITH_CORE)
    step, slopes = 1e-5 * jnp.array([0.48, 0.6, 0.64]), []
    for nucleus in WITH_CORE.nuclei:
        met = r.at[1].set(jnp.array(nucleus))
        beside = [log_psi(params, met.at[1].add(sign * step)) for sign in (1, -1)]
        slopes.append(float(sum(beside) / 2 - log_psi(params, met)) / 1e-5)
    with_core, bare = slopes
    assert abs(with_core) < 1e-3  # of the second derivative, half a step
    if name == "slater-jastrow":
        np.testing.assert_allclose(bare, -1.0, rtol=1e-2)
    else:
        assert abs(bare) > 0.01


@every_ansatz
def test_a_molecule_can_be_moved(name) -> None:
    """Catches a position that enters on its own, not relative to nuclei or electrons."""
    here, shift = make(name), np.array([3.0, -2.0, 1.0])
    moved = CARBON_LIKE.nuclei + shift
    there = make(name, True, System(tuple(map(tuple, moved.tolist())), (4, 1), 3, 2))
    np.testing.assert_allclose(
        there.log_psi(here.params, here.r + shift), here.log_psi(here.params, here.r), rtol=1e-10
    )


@every_ansatz
def test_blocks_are_full_determinants_that_are_zero_off_the_diagonal(name) -> None:
    """det [A 0; 0 B] = det A · det B, for each determinant by itself before they are summed."""
    whole, blocks = make(name, True), make(name, False)

    def widen(path, full: jax.Array, block: jax.Array) -> jax.Array:
        if full.shape == block.shape:
            return block
        own = slice(None, 3) if path[-2].key.endswith("_0") else slice(3, None)
        lead = full.shape[:1] if full.ndim > 1 else ()  # features or nuclei; a bias has neither
        widened = np.zeros((*lead, DETERMINANTS, 5))
        widened[..., own] = np.reshape(block, widened[..., own].shape)
        return jnp.asarray(widened.reshape(full.shape))

    params = jax.tree_util.tree_map_with_path(widen, whole.params, blocks.params)
    np.testing.assert_allclose(
        whole.log_psi(params, blocks.r), blocks.log_psi(blocks.params, blocks.r), rtol=1e-10
    )


# FermiNet's own features have slopes where electrons meet, which it has to unlearn.
@pytest.mark.slow
@pytest.mark.parametrize("name", ["psiformer", "slater-jastrow"])
def test_the_local_energy_is_finite_where_electrons_meet(name) -> None:
    """Kato: ½ for unlike, ¼ for like spins. A slope wrong by 0.01 would cost 180 hartree."""
    _, log_psi, _, params, r = make(name)
    local_energy = jax.jit(make_local_energy(log_psi, CARBON_LIKE))
    direction = jnp.array([0.6, 0.0, 0.8])
    for i, j in [(0, 1), (3, 4), (0, 3)]:
        far, near = (local_energy(params, r.at[i].set(r[j] + d * direction)) for d in (1e-3, 1e-4))
        assert abs(near - far) < 20.0


@pytest.mark.parametrize(("n_up", "slope"), [(2, 0.25), (1, 0.5)])
def test_the_jastrow_factor_has_katos_cusp(n_up, slope) -> None:
    """dJ/dr at r = 0 is ¼ for like and ½ for unlike spins."""
    jastrow = CuspJastrow(n_up)
    pair = lambda d: jnp.array([[0.0, 0.0, 0.0], [d, 0.0, 0.0]])  # noqa: E731 -- one expression
    nuclei = Nuclei(jnp.zeros((0, 3)), jnp.zeros(0))
    params = jastrow.init(jax.random.key(0), pair(1.0), nuclei)
    derivative = jax.grad(lambda d: jastrow.apply(params, pair(d), nuclei))(1e-8)
    np.testing.assert_allclose(derivative, slope, rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_determinants_of_any_size_are_summed(scale) -> None:
    """Eight orbitals scaled by 1e±30 put the determinant at 1e±240, far beyond float32."""
    orbitals = jax.random.normal(jax.random.key(3), (4, 8, 8))
    exact = np.log(abs(np.linalg.det(np.asarray(orbitals)).sum())) + 8 * np.log(scale)
    scaled = (orbitals * scale).astype(jnp.float32)
    np.testing.assert_allclose(sum_of_determinants((scaled,)).log_abs, exact, rtol=1e-5)


def test_determinants_keep_their_signs() -> None:
    """det A + det B with opposite signs partly cancels: log|6 − 2|."""
    orbitals = jnp.stack([jnp.diag(jnp.array([2.0, 3.0])), jnp.diag(jnp.array([-1.0, 2.0]))])
    np.testing.assert_allclose(sum_of_determinants((orbitals,)).log_abs, np.log(4.0), rtol=1e-12)


def test_a_determinant_that_vanished_is_left_out_of_value_and_gradient() -> None:
    """Far from the nuclei one may underflow before the others; the sum goes on without it."""
    alive = jnp.diag(jnp.array([2.0, 3.0]))
    value, gradient = jax.value_and_grad(lambda a: sum_of_determinants((a,)).log_abs)(
        jnp.stack([alive, 0.0 * alive])
    )
    np.testing.assert_allclose(value, np.log(6.0), rtol=1e-12)
    np.testing.assert_allclose(gradient, [np.diag([1 / 2, 1 / 3]), np.zeros((2, 2))], rtol=1e-12)


def test_where_all_determinants_vanished_the_logarithm_is_minus_infinity() -> None:
    """NaN would say that something is wrong, and -∞ that nobody is there."""
    assert sum_of_determinants((jnp.zeros((3, 2, 2)),)).log_abs == -np.inf


def test_orbitals_fill_shells_in_order() -> None:
    """1s; 2s and three 2p; nine of the third shell."""
    assert [shell(k) for k in range(15)] == [1] + [2] * 4 + [3] * 9 + [4]


def test_no_envelope_begins_so_slow_that_electrons_are_on_their_way_out() -> None:
    """Water's hydrogens had exp(−r/2) for four orbitals of five; its oxygen has Z / n."""
    init = log_slater_exponents(charges=(8, 1), columns=(0, 1, 4, 5))
    zeta = jnp.exp(init(jax.random.key(0), (2, DETERMINANTS, 4), jnp.zeros(()).dtype))
    wanted = np.array([[8.0, 4.0, 4.0, 8.0 / 3.0], [1.0] * 4])
    for determinant in range(DETERMINANTS):
        np.testing.assert_allclose(zeta[:, determinant], wanted, rtol=1e-12)


@pytest.mark.parametrize("name", ["ferminet", *rest("psiformer")])
@pytest.mark.parametrize(
    ("full", "n_each"),
    [(True, (1, 1)), (False, (1, 0)), *rest((True, (1, 0)), (False, (1, 1)))],
    ids=["full-two", "blocks-one", "full-one", "blocks-two"],
)
def test_an_untrained_network_has_no_node_where_the_ground_state_has_none(
    name, full, n_each
) -> None:
    """One electron, or two of opposite spin: of one sign, and near the product of envelopes."""
    system = System(((0.0, 0.0, 0.0), (0.0, 0.0, 1.4)), (1, 1), *n_each)
    net = ANSATZE[name](system, DETERMINANTS, full)
    walkers = 1.5 * jax.random.normal(jax.random.key(3), (1000, system.n_electrons, 3))
    init, orbitals = jax.jit(net.init), jax.jit(jax.vmap(net.orbitals, (None, 0)))
    for seed in range(3):
        stacks = orbitals(init(jax.random.key(seed), walkers[0]), walkers)
        psi = np.prod([np.linalg.det(np.asarray(stack)) for stack in stacks], axis=0).sum(axis=-1)
        distances = jnp.linalg.norm(walkers[:, :, None] - jnp.array(system.nuclei), axis=-1)
        product = DETERMINANTS * jnp.prod(jnp.sum(jnp.exp(-distances), axis=-1), axis=-1)
        assert (psi > 0.0).all()
        assert 0.8 < np.median(psi / product) < 1.25


@pytest.mark.slow
@every_ansatz
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_everything_follows_the_precision_of_the_process(name, dtype) -> None:
    """In a float64 run flax's own float32 must not creep in, nor the other way round."""
    jax.config.update("jax_enable_x64", dtype == "float64")
    net = ANSATZE[name](CARBON_LIKE)
    r = jax.random.normal(jax.random.key(1), (5, 3))
    params = jax.eval_shape(net.init, jax.random.key(0), r)
    dtypes = {leaf.dtype for leaf in jax.tree.leaves(params)}
    assert dtypes == {jnp.dtype(dtype)} == {jax.eval_shape(net.log_psi, params, r).dtype}


def test_rescaled_inputs_grow_as_a_logarithm() -> None:
    """(x, d) log(1 + d)/d, whose limit at d = 0 has derivatives."""
    x = jnp.array([[3.0, 0.0, 4.0], [0.0, 0.0, 0.0]])
    d = jnp.array([5.0, 0.0])
    expected = [[0.6 * np.log(6.0), 0.0, 0.8 * np.log(6.0), np.log(6.0)], [0.0] * 4]
    np.testing.assert_allclose(rescaled(x, d), expected, atol=1e-15)
    slopes = jax.jacfwd(rescaled, (0, 1))(x, d)
    assert all(bool(jnp.all(jnp.isfinite(slope))) for slope in slopes)
    assert float(slopes[1][1, 3, 1]) == 1.0


def test_a_spec_may_rescale_the_inputs_of_ferminet() -> None:
    """Far away ψ is another one with the same parameters, and still antisymmetric."""
    plain, scaled = (
        make_ansatz(FermiNetOptions(determinants=2, rescale_inputs=on), CARBON_LIKE)
        for on in (False, True)
    )
    nuclei, r = nuclei_of(CARBON_LIKE), 50.0 * jax.random.normal(jax.random.key(1), (5, 3))
    params = any_params(jax.eval_shape(plain.init, jax.random.key(0), r, nuclei))
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(
        lambda leaf: leaf.shape, jax.eval_shape(scaled.init, jax.random.key(0), r, nuclei)
    )
    psi = jax.jit(make_psi(scaled))
    log_abs = float(psi(params, r, nuclei).log_abs)
    assert log_abs != float(make_psi(plain)(params, r, nuclei).log_abs)
    slopes = jax.grad(lambda r: make_psi(scaled)(params, r, nuclei).log_abs)(r)
    assert bool(jnp.all(jnp.isfinite(slopes)))  # an electron has no distance from itself
    swapped = psi(params, r[jnp.array([1, 0, 2, 3, 4])], nuclei)
    assert float(swapped.log_abs) == pytest.approx(log_abs, rel=1e-10)
