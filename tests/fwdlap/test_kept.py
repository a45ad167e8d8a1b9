"""Arrays that XLA:CPU is to compute once: whether it does, as workers tell it to."""

import jax
import jax.numpy as jnp
import numpy as np

from vmcjob import fwdlap


def _joined(keep):
    return lambda x, y: jnp.concatenate([keep(jnp.tanh(x)), y], axis=1)


def test_what_is_kept_is_in_nobody_elses_loop() -> None:
    """A tanh that goes into a concatenation is in its loop; one that is kept has its own."""
    x, y = jnp.linspace(-1.0, 1.0, 600).reshape(50, 12), jnp.ones((50, 4))
    texts, values = [], []
    for keep in (fwdlap.kept, lambda x: x):
        program = jax.jit(_joined(keep)).lower(x, y).compile()
        texts.append(program.as_text())
        values.append(program(x, y))
    assert ["opt-barrier" in text for text in texts] == [True, False]
    np.testing.assert_allclose(*values, rtol=1e-6)


def test_trees_and_derivatives_pass() -> None:
    """As if it were not there."""
    tree = {"a": jnp.ones(3), "b": (jnp.zeros(2),)}
    assert jax.tree.structure(fwdlap.kept(tree)) == jax.tree.structure(tree)
    x = jnp.linspace(0.1, 1.0, 5)
    found = jax.vmap(jax.grad(lambda x: fwdlap.kept(x**2) * x))(x)
    np.testing.assert_allclose(found, 3 * x**2, rtol=1e-6)
