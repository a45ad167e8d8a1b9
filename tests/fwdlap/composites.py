"""Functions as users write them, each of electrons (elec, 3): the networks and their relatives."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy import special

from tests.fwdlap.networks import NETWORKS, SMALL, Molecule, hydrogen_chain, layer_norm

Function = Callable[[jax.Array], Any]


def weight(seed: int, *shape: int) -> jax.Array:
    """A seeded matrix of moderate size."""
    return jax.random.normal(jax.random.key(seed), shape) / jnp.sqrt(shape[0])


def _pairs(r: jax.Array) -> jax.Array:
    """Distances between electrons, zero on the diagonal, smooth there."""
    eye = jnp.eye(len(r))
    return jnp.linalg.norm(r[:, None] - r[None] + eye[..., None], axis=-1) * (1.0 - eye)


def of_chain(name: str, molecule: Molecule, r: jax.Array) -> jax.Array:
    """log |psi| of a small network with parameters that are always the same."""
    init, log_psi = NETWORKS[name]
    with jax.ensure_compile_time_eval():
        params = init(jax.random.key(0), molecule, SMALL)
    return log_psi(params, molecule, r)


def mlp(r: jax.Array) -> jax.Array:
    h = jax.nn.silu(r.reshape(-1) @ weight(1, r.size, 16))
    return jnp.sum(jnp.tanh(h @ weight(2, 16, 16)) @ weight(3, 16, 1))


def mlp_without_reshape(r: jax.Array) -> jax.Array:
    return jnp.sin(jnp.einsum("ic,icf->f", r, weight(4, *r.shape, 8))).sum()


def slater_jastrow(r: jax.Array) -> jax.Array:
    decay = jnp.exp(-jnp.linalg.norm(r[:, None] - r.shape[0] * weight(5, len(r), 3), axis=-1))
    jastrow = -0.25 * jnp.sum(jnp.triu(1.0 / (1.0 + _pairs(r)), 1))
    return jnp.linalg.slogdet(decay)[1] + jastrow


def backflow(r: jax.Array) -> jax.Array:
    shift = jnp.sum((r[:, None] - r[None]) * jnp.exp(-_pairs(r))[..., None], axis=1)
    orbitals = jnp.tanh((r + 0.3 * shift) @ weight(6, 3, len(r)))
    return jnp.linalg.slogdet(orbitals + jnp.eye(len(r)))[1]


def conv_pool_dense(r: jax.Array) -> jax.Array:
    image = jnp.resize(r, (1, 1, 6, 6)) * jnp.linspace(0.5, 1.5, 36).reshape(1, 1, 6, 6)
    h = jnp.tanh(lax.conv(image, weight(7, 4, 1, 3, 3), (1, 1), "SAME"))
    h = lax.reduce_window(h, 0.0, lax.add, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    return jnp.sum(jax.nn.softplus(h.reshape(-1) @ weight(8, 36, 5)))


def masked_attention(r: jax.Array) -> jax.Array:
    q, k, v = (r @ weight(i, 3, 8) for i in (9, 10, 11))
    causal = jnp.tril(jnp.ones((len(r), len(r)), bool))
    logits = jnp.where(causal, q @ k.T, -jnp.inf)
    return jnp.sum(jnp.sin(jax.nn.softmax(logits, axis=-1) @ v))


def deep_attention(r: jax.Array) -> jax.Array:
    h = r @ weight(12, 3, 8)
    for i in range(2):
        logits = jnp.einsum("ia,ja->ij", h @ weight(13 + i, 8, 8), h)
        h = layer_norm(h + jax.nn.softmax(logits) @ h)
    return jnp.sum(jnp.tanh(h @ weight(15, 8, 1)))


def multi_head_attention(r: jax.Array) -> jax.Array:
    h = jnp.tanh(r @ weight(16, 3, 8)).reshape(len(r), 2, 4)
    logits = jnp.einsum("ihd,jhd->hij", h, h[:, ::-1])
    return jnp.sum(jnp.sin(jnp.einsum("hij,jhd->ihd", jax.nn.softmax(logits), h)))


def scan_rnn(r: jax.Array) -> jax.Array:
    def cell(h: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        h = jnp.tanh(h @ weight(17, 6, 6) + x @ weight(18, 3, 6))
        return h, h.sum()

    h, outputs = lax.scan(cell, jnp.zeros(6), r)
    return h.sum() * outputs.prod()


def gated_loop(r: jax.Array) -> jax.Array:
    def body(i: jax.Array, h: jax.Array) -> jax.Array:
        return jax.nn.sigmoid(h) * r[i % len(r)] + h

    return jnp.sum(lax.fori_loop(0, 4, body, r[0]) ** 2)


def complex_logdet(r: jax.Array) -> jax.Array:
    phases = jnp.exp(1j * (r @ weight(19, 3, len(r)))) + jnp.eye(len(r))
    return jnp.linalg.slogdet(phases)[1]


def complex_log_amplitude(r: jax.Array) -> jax.Array:
    return jnp.log(jnp.sum(jnp.exp(1j * (r @ weight(20, 3, 4))) * (2.0 + r[:, :1])))


def log_sum_exp_of_determinants(r: jax.Array) -> jax.Array:
    stack = jnp.tanh(jnp.einsum("ic,cko->kio", r, weight(21, 3, 5, len(r)))) + jnp.eye(len(r))
    sign, log = jnp.linalg.slogdet(stack)
    return special.logsumexp(log, b=sign * jnp.arange(1.0, 6.0), return_sign=True)[0]


def product_of_spin_determinants(r: jax.Array) -> jax.Array:
    n = len(r) // 2
    blocks = (r[:n], r[n:])
    dets = [jnp.linalg.det(jnp.sin(x @ weight(22, 3, len(x))) + jnp.eye(len(x))) for x in blocks]
    return jnp.log(jnp.abs(dets[0] * dets[1]))


def polynomial(r: jax.Array) -> jax.Array:
    return jnp.sum(r**4) + jnp.prod(r[:, 0]) + jnp.sum(r) ** 3


def gaussian_mixture(r: jax.Array) -> jax.Array:
    square = jnp.sum((r[:, None] - weight(23, 5, 3)) ** 2, axis=-1)
    return jnp.sum(special.logsumexp(-square, axis=1))


def nearest_neighbour(r: jax.Array) -> jax.Array:
    return jnp.sum(jnp.sort(_pairs(r), axis=1)[:, 1] ** 2)


def graph_messages(r: jax.Array) -> jax.Array:
    senders, receivers = jnp.array([0, 1, 2, 0]), jnp.array([1, 2, 0, 2])
    h = jnp.tanh(r @ weight(24, 3, 4))
    messages = jax.ops.segment_sum(h[senders] * r[receivers, :1], receivers, len(r))
    return jnp.sum(jnp.sin(h + messages))


def symmetric_polynomial_of_eigenvalues(r: jax.Array) -> jax.Array:
    gram = r.T @ r + jnp.diag(jnp.arange(3.0))
    return jnp.sum(jnp.log(jnp.linalg.eigvalsh(gram)))


def cholesky_logdet(r: jax.Array) -> jax.Array:
    kernel = jnp.exp(-(_pairs(r) ** 2)) + jnp.eye(len(r))
    return 2.0 * jnp.sum(jnp.log(jnp.diagonal(jnp.linalg.cholesky(kernel))))


def several_outputs(r: jax.Array) -> dict[str, jax.Array]:
    return {"energy": jnp.sum(r**2), "field": jnp.sin(r), "pairs": _pairs(r)}


def vmapped_orbitals(r: jax.Array) -> jax.Array:
    def orbital(x: jax.Array) -> jax.Array:
        return jnp.exp(-jnp.sum(x**2)) * jnp.tanh(x @ weight(25, 3, len(r)))

    return jnp.linalg.slogdet(jax.vmap(orbital)(r) + jnp.eye(len(r)))[1]


@jax.custom_jvp
def _safe_norm(x: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.sum(x**2, axis=-1))


@_safe_norm.defjvp
def _safe_norm_jvp(primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    (x,), (t,) = primals, tangents
    length = _safe_norm(x)
    return length, jnp.sum(x * t, axis=-1) / jnp.maximum(length, 1e-12)


def custom_derivative(r: jax.Array) -> jax.Array:
    return jnp.sum(jnp.exp(-_safe_norm(r)))


CHAIN = hydrogen_chain(4)

COMPOSITES: dict[str, Function] = {
    "ferminet": partial(of_chain, "ferminet", CHAIN),
    "ferminet_polarised": partial(of_chain, "ferminet", CHAIN._replace(n_up=4, n_down=0)),
    "psiformer": partial(of_chain, "psiformer", CHAIN),
} | {
    function.__name__: function
    for function in (
        mlp, mlp_without_reshape, slater_jastrow, backflow, conv_pool_dense, masked_attention,
        deep_attention, multi_head_attention, scan_rnn, gated_loop, complex_logdet,
        complex_log_amplitude, log_sum_exp_of_determinants, product_of_spin_determinants,
        polynomial, gaussian_mixture, nearest_neighbour, graph_messages,
        symmetric_polynomial_of_eigenvalues, cholesky_logdet, several_outputs, vmapped_orbitals,
        custom_derivative,
    )
}  # fmt: skip
