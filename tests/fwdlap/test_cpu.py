"""Arrays that XLA:CPU is to compute once: whether it does, as workers tell it to."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vmcjob import fwdlap
from vmcjob.fwdlap.cpu import kept, kept_for, kept_in_order


def _joined(keep):
    return lambda x, y: jnp.concatenate([keep(jnp.tanh(x)), y], axis=1)


@pytest.mark.usefixtures("on_cpus")
def test_what_is_kept_is_in_nobody_elses_loop() -> None:
    """A tanh that goes into a concatenation is in its loop; one that is kept has its own."""
    x, y = jnp.linspace(-1.0, 1.0, 600).reshape(50, 12), jnp.ones((50, 4))
    texts, values = [], []
    for keep in (kept, lambda x: x):
        program = jax.jit(_joined(keep)).lower(x, y).compile()
        texts.append(program.as_text())
        values.append(program(x, y))
    assert ["opt-barrier" in text for text in texts] == [True, False]
    np.testing.assert_allclose(*values, rtol=1e-6)


def test_trees_and_derivatives_pass() -> None:
    """As if it were not there."""
    tree = {"a": jnp.ones(3), "b": (jnp.zeros(2),)}
    assert jax.tree.structure(kept(tree)) == jax.tree.structure(tree)
    x = jnp.linspace(0.1, 1.0, 5)
    found = jax.vmap(jax.grad(lambda x: kept(x**2) * x))(x)
    np.testing.assert_allclose(found, 3 * x**2, rtol=1e-6)


@pytest.mark.usefixtures("on_cpus")
def test_an_array_is_in_another_order_before_it_is_reshaped() -> None:
    """A copy in a loop with what reshapes it would look for each number by dividing."""
    x = jnp.arange(2.0 * 30 * 10 * 32).reshape(2, 30, 10, 4, 8)
    order = (0, 3, 2, 1, 4)

    def merged(x: jax.Array) -> jax.Array:
        return kept_in_order(x, order).reshape(2, 4, 10, 240) @ jnp.ones((240, 3))

    program = jax.jit(merged).lower(x).compile()
    loops = (program.as_text() or "").split("\n}\n")
    assert any(" copy(" in loop for loop in loops)
    assert not any(" copy(" in loop and " bitcast(" in loop for loop in loops[:-2])
    expected = np.asarray(x).transpose(order).reshape(2, 4, 10, 240).sum(axis=-1)
    np.testing.assert_allclose(program(x)[..., 0], expected, rtol=1e-5)


@pytest.mark.usefixtures("on_cpus")
def test_a_jacobian_is_copied_where_its_rows_become_columns() -> None:
    """What comes next may reshape it. Where rows only change places, nothing is copied."""
    x, weights = jnp.linspace(-1.0, 1.0, 6), jnp.cos(jnp.arange(6.0 * 24)).reshape(6, 24)

    def copies(order: tuple[int, ...]) -> int:
        def turned(x: jax.Array) -> jax.Array:
            return jnp.sum(jnp.tanh(x @ weights).reshape(2, 3, 4).transpose(order).reshape(-1) ** 2)

        found = fwdlap.laplacian(turned)(x)
        expected = jnp.trace(jax.hessian(turned)(x))
        np.testing.assert_allclose(found.laplacian, expected, rtol=1e-4)  # rounding of 144 terms
        return str(jax.make_jaxpr(fwdlap.laplacian(turned))(x)).count("layout_constraint")

    assert copies((0, 2, 1)) == copies((1, 0, 2)) + 1


@pytest.mark.usefixtures("on_cpus")
def test_only_what_grows_much_is_kept_for_a_shape() -> None:
    """And numbers alone never are."""

    def spread(x: jax.Array) -> list[jax.Array]:
        return [kept_for(x, (3, 8)), kept_for(x, (3, 7)), kept_for(x[0], (8,))]

    text = str(jax.make_jaxpr(spread)(jnp.ones((3, 1))))
    assert text.count("optimization_barrier") == 1
