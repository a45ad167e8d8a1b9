"""FermiNet as a wave function: antisymmetry, cusp, many determinants, precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.ansatze import small_ferminet
from vmcjob.vmc.ansatz import make_log_psi
from vmcjob.vmc.ansatz.determinants import log_abs_sum_det
from vmcjob.vmc.ansatz.envelopes import shell
from vmcjob.vmc.ansatz.jastrow import CuspJastrow
from vmcjob.vmc.contracts import LogPsi, Params
from vmcjob.vmc.system import System

pytestmark = pytest.mark.usefixtures("float64")
CARBON_LIKE = System(((0.0, 0.0, 0.0), (0.0, 0.5, 1.0)), (4, 1), 3, 2)


def make(system: System = CARBON_LIKE, jastrow: bool = True) -> tuple[LogPsi, Params, jax.Array]:
    """log|ψ| of a small FermiNet, its parameters and one walker."""
    net = small_ferminet(system, 3, jastrow=jastrow)
    r = jax.random.normal(jax.random.key(1), (system.n_electrons, 3))
    return make_log_psi(net), net.init(jax.random.key(0), r), r


def test_exchanging_like_spins_leaves_the_modulus_unchanged() -> None:
    """|ψ| is symmetric under permutations within a spin."""
    log_psi, params, r = make()
    permuted = r[jnp.array([2, 0, 1, 4, 3])]
    np.testing.assert_allclose(log_psi(params, permuted), log_psi(params, r), rtol=1e-12)


def test_exchanging_unlike_spins_changes_the_modulus() -> None:
    """Catches an ansatz that is symmetric in everything, or blind to electrons."""
    log_psi, params, r = make()
    exchanged = r[jnp.array([3, 1, 2, 0, 4])]
    assert abs(log_psi(params, exchanged) - log_psi(params, r)) > 1e-3


@pytest.mark.parametrize(("i", "j", "vanishes"), [(0, 1, True), (3, 4, True), (0, 3, False)])
def test_the_wave_function_vanishes_only_where_like_spins_meet(i, j, vanishes) -> None:
    """Pauli: antisymmetry puts a node where like spins meet, and none where unlike ones do."""
    log_psi, params, r = make()
    met = log_psi(params, r.at[i].set(r[j] + 1e-9))
    assert (met < log_psi(params, r) - 10.0) == vanishes


@pytest.mark.parametrize(("n_up", "n_down"), [(1, 0), (0, 1), (3, 0), (2, 2)])
def test_any_numbers_of_spins_have_a_finite_wave_function(n_up, n_down) -> None:
    """One spin may be empty, and a single electron has no pairs."""
    log_psi, params, r = make(System(((0.0, 0.0, 0.0),), (4,), n_up, n_down))
    gradient = jax.grad(log_psi, argnums=1)(params, r)
    assert np.isfinite(gradient).all()
    assert np.abs(gradient).max() > 0


@pytest.mark.parametrize(("n_up", "slope"), [(2, 0.25), (1, 0.5)])
def test_the_jastrow_factor_has_katos_cusp(n_up, slope) -> None:
    """dJ/dr at r = 0 is ¼ for like and ½ for unlike spins."""
    jastrow = CuspJastrow(n_up)
    pair = lambda d: jnp.array([[0.0, 0.0, 0.0], [d, 0.0, 0.0]])  # noqa: E731 -- one expression
    params = jastrow.init(jax.random.key(0), pair(1.0))
    derivative = jax.grad(lambda d: make_log_psi(jastrow)(params, pair(d)))(1e-8)
    np.testing.assert_allclose(derivative, slope, rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_determinants_of_any_size_are_summed(scale) -> None:
    """Eight orbitals scaled by 1e±30 put the determinant at 1e±240, far beyond float32."""
    orbitals = jax.random.normal(jax.random.key(3), (4, 8, 8))
    exact = np.log(abs(np.linalg.det(np.asarray(orbitals)).sum())) + 8 * np.log(scale)
    scaled = (orbitals * scale).astype(jnp.float32)
    np.testing.assert_allclose(log_abs_sum_det((scaled,)), exact, rtol=1e-5)


def test_determinants_keep_their_signs() -> None:
    """det A + det B with opposite signs partly cancels: log|6 − 2|."""
    orbitals = jnp.stack([jnp.diag(jnp.array([2.0, 3.0])), jnp.diag(jnp.array([-1.0, 2.0]))])
    np.testing.assert_allclose(log_abs_sum_det((orbitals,)), np.log(4.0), rtol=1e-12)


def test_a_determinant_that_vanished_is_left_out_of_value_and_gradient() -> None:
    """Far from the nuclei one may underflow before the others; the sum goes on without it."""
    alive = jnp.diag(jnp.array([2.0, 3.0]))
    value, gradient = jax.value_and_grad(lambda a: log_abs_sum_det((a,)))(
        jnp.stack([alive, 0.0 * alive])
    )
    np.testing.assert_allclose(value, np.log(6.0), rtol=1e-12)
    np.testing.assert_allclose(gradient, [np.diag([1 / 2, 1 / 3]), np.zeros((2, 2))], rtol=1e-12)


def test_where_all_determinants_vanished_the_logarithm_is_minus_infinity() -> None:
    """NaN would say that something is wrong, and -∞ that nobody is there."""
    assert log_abs_sum_det((jnp.zeros((3, 2, 2)),)) == -np.inf


def test_orbitals_fill_shells_in_order() -> None:
    """1s; 2s and three 2p; nine of the third shell."""
    assert [shell(k) for k in range(15)] == [1] + [2] * 4 + [3] * 9 + [4]


def test_parameters_follow_the_precision_of_the_process() -> None:
    """In a float64 run flax's own float32 must not creep in."""
    _, params, _ = make()
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float64")}
