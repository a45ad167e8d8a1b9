"""One small function per primitive, and inputs of every sparsity pattern to feed them."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy import special

Function = Callable[[jax.Array], Any]

_RNG = np.random.default_rng(7)
MIXER = _RNG.normal(size=(3, 3))
WIDE = _RNG.normal(size=(64, 64))


def _single(x: jax.Array) -> jax.Array:
    return x


def _row(x: jax.Array) -> jax.Array:
    return x @ jnp.asarray(MIXER)


def _pair(x: jax.Array) -> jax.Array:
    return x[:, None] - 0.5 * x[None]


def _dense(x: jax.Array) -> jax.Array:
    return jnp.asarray(WIDE[: len(x), : len(x)]) @ x


def _windowed(x: jax.Array) -> jax.Array:
    return jnp.concatenate([x[:, :1], x @ MIXER[:, :1], jnp.ones((len(x), 1))], axis=1)


def _unwritten(x: jax.Array) -> jax.Array:
    return jnp.broadcast_to(x.mean(0, keepdims=True), x.shape)


def _mixed(x: jax.Array) -> jax.Array:
    return x @ MIXER + x.mean(0, keepdims=True)


def _constant(x: jax.Array) -> jax.Array:
    return jnp.ones(x.shape) * jnp.asarray(MIXER[0])


# Each maps electrons (elec, 3) to an array whose last axis has length 3.
PATTERNS: dict[str, Function] = {
    "single": _single,
    "row": _row,
    "pair": _pair,
    "dense": _dense,
    "windowed": _windowed,
    "unwritten": _unwritten,
    "mixed": _mixed,
    "constant": _constant,
}


def positive(y: jax.Array) -> jax.Array:
    """Into (0.5, inf)."""
    return y * y + 0.5


def unit(y: jax.Array) -> jax.Array:
    """Into (-0.8, 0.8)."""
    return 0.8 * jnp.sin(y)


def _square_matrix(y: jax.Array) -> jax.Array:
    """(..., 3) to (..., 3, 3), well conditioned."""
    return jnp.sin(y)[..., None] * MIXER + jnp.eye(3) * (3.0 + y[..., None, :])


def _symmetric(y: jax.Array) -> jax.Array:
    a = _square_matrix(y)
    spread = jnp.diag(jnp.arange(3.0) * 7.0)
    return a + jnp.swapaxes(a, -1, -2) + jnp.eye(3) * 9.0 + spread


def _image(y: jax.Array) -> jax.Array:
    return jnp.resize(y, (1, 1, 6, 6)) * jnp.linspace(0.5, 1.5, 36).reshape(1, 1, 6, 6)


KERNEL = _RNG.normal(size=(2, 1, 3, 3))


def _convolve(image: jax.Array, kernel: Any) -> jax.Array:
    return lax.conv(image, jnp.asarray(kernel), (1, 1), "SAME")


WHERE = np.array([2, 0, 1])


def _windows(y: jax.Array, start: float, operation: Callable[..., Any]) -> jax.Array:
    """Reduce neighbouring pairs along the last axis."""
    size = (*[1] * (y.ndim - 1), 2)
    return lax.reduce_window(y, start, operation, size, (1,) * y.ndim, "VALID")


UNARY: dict[str, Function] = {
    "exp": jnp.exp,
    "exp2": jnp.exp2,
    "log": lambda y: jnp.log(positive(y)),
    "log1p": lambda y: jnp.log1p(positive(y)),
    "expm1": jnp.expm1,
    "tanh": jnp.tanh,
    "optimization_barrier": lambda y: jnp.sin(lax.optimization_barrier(y)),
    "logistic": jax.nn.sigmoid,
    "sin": jnp.sin,
    "cos": jnp.cos,
    "tan": lambda y: jnp.tan(unit(y)),
    "asin": lambda y: jnp.arcsin(unit(y)),
    "acos": lambda y: jnp.arccos(unit(y)),
    "atan": jnp.arctan,
    "sinh": jnp.sinh,
    "cosh": jnp.cosh,
    "asinh": jnp.arcsinh,
    "acosh": lambda y: jnp.arccosh(1.0 + positive(y)),
    "atanh": lambda y: jnp.arctanh(unit(y)),
    "sqrt": lambda y: jnp.sqrt(positive(y)),
    "rsqrt": lambda y: lax.rsqrt(positive(y)),
    "cbrt": lambda y: jnp.cbrt(positive(y)),
    "erf": special.erf,
    "erfc": special.erfc,
    "erf_inv": lambda y: special.erfinv(unit(y)),
    "lgamma": lambda y: special.gammaln(positive(y)),
    "digamma": lambda y: special.digamma(positive(y)),
    "bessel_i0e": lambda y: special.i0e(positive(y)),
    "bessel_i1e": lambda y: special.i1e(positive(y)),
    "square": jnp.square,
    "integer_pow": lambda y: y**3,
    "pow_of_one": lambda y: positive(y) ** 1.5,
    "integer_pow_inverse": lambda y: positive(y) ** -2,
    "abs": jnp.abs,
    "neg": lambda y: -y,
    "sign": lambda y: y * jnp.sign(y),
    "floor": lambda y: y * jnp.floor(y),
    "round": lambda y: y * jnp.round(y),
    "stop_gradient": lambda y: y * lax.stop_gradient(y),
    "convert_element_type": lambda y: jnp.sin(y).astype(jnp.complex128).real,
    "to_integer": lambda y: y * (10 * y).astype(jnp.int32),
    "reduce_precision": lambda y: lax.reduce_precision(jnp.sin(y), 11, 52),
    "complex": lambda y: jnp.abs(lax.complex(jnp.sin(y), jnp.cos(2 * y) + 2.0)),
    "real_imag_conj": lambda y: (lambda z: (jnp.conj(z) * z**2).imag + z.real)(jnp.exp(1j * y)),
    "angle": lambda y: jnp.angle(jnp.exp(0.3j * unit(y)) + 0.1),
    "fft": lambda y: jnp.abs(jnp.fft.fft(jnp.sin(y))) ** 2,
}

BINARY: dict[str, Callable[[jax.Array, jax.Array], Any]] = {
    "add": lambda y, z: y + z,
    "sub": lambda y, z: y - jnp.sin(z),
    "mul": lambda y, z: y * z,
    "div": lambda y, z: y / positive(z),
    "pow": lambda y, z: positive(y) ** z,
    "atan2": lambda y, z: jnp.arctan2(positive(y), positive(z)),
    "rem": lambda y, z: jnp.fmod(y, 3.0 + positive(z)),
    "max": jnp.maximum,
    "min": jnp.minimum,
    "clamp": lambda y, z: jnp.clip(y * z, -0.5, 0.5),
    "select_n": lambda y, z: jnp.where(y > z, y * z, jnp.sin(z)),
    "logaddexp": jnp.logaddexp,
    "hypot": lambda y, z: jnp.hypot(positive(y), z),
    "dot_general": lambda y, z: jnp.einsum("...i,...i->...", y, z),
    "dot_general_outer": lambda y, z: jnp.einsum("...i,...j->...ji", y, z),
    "dot_general_over_electrons": lambda y, z: jnp.einsum("i...c,i...d->c...d", y, z),
    "concatenate": lambda y, z: jnp.concatenate([jnp.sin(y), z], axis=-1) ** 2,
    "stack": lambda y, z: jnp.sin(jnp.stack([y, z * y], axis=0)).sum(1),
    "stack_behind": lambda y, z: jnp.stack([y, z * y], axis=-1) ** 2,
    "zeta": lambda y, z: special.zeta(2.0 + positive(y), 1.0),
    "igamma": lambda y, z: special.gammainc(2.5, positive(z)) * y,
    "betainc": lambda y, z: special.betainc(1.5, 2.5, 0.5 + 0.4 * unit(z)) * y,
}

STRUCTURE: dict[str, Function] = {
    "reshape": lambda y: jnp.sin(y.reshape(-1)),
    "reshape_and_back": lambda y: jnp.sin(y.reshape(-1)).reshape(y.shape)[..., 0],
    "transpose": lambda y: jnp.sin(y.T) * y.T,
    "broadcast_in_dim": lambda y: jnp.sin(jnp.broadcast_to(y, (2, *y.shape))),
    "squeeze_expand_dims": lambda y: jnp.sin(jnp.squeeze(y[None, ..., None], (0, -1))),
    "slice": lambda y: jnp.sin(y[..., 1:]) * y[..., :-1],
    "slice_strided": lambda y: jnp.sin(y[..., ::2]) * y[:1, ..., :1],
    "split": lambda y: jnp.sin(jnp.split(y, [1], axis=-1)[1]) * jnp.split(y, 3, axis=-1)[0],
    "unstack": lambda y: [jnp.sin(part) for part in jnp.unstack(y, axis=-1)],
    "rev": lambda y: y * jnp.flip(y, -1),
    "pad": lambda y: jnp.exp(jnp.pad(y, [(1, 0)] * y.ndim, constant_values=0.3)),
    "tile": lambda y: jnp.sin(jnp.tile(y, 2)),
    "gather": lambda y: y[..., WHERE] * y,
    "gather_rows": lambda y: jnp.sin(y[np.array([0, -1, 0])]),
    "gather_pairs": lambda y: y[jnp.triu_indices(len(y), k=1)[0]] ** 2,
    "gather_traced": lambda y: jnp.sin(y[(10 * y[..., :1] ** 2).astype(int) % len(y)]),
    "scatter": lambda y: y.at[..., 1].set(jnp.sin(y[..., 0])),
    "scatter_add": lambda y: y.at[0].add(y[-1] ** 2),
    "scatter_mul": lambda y: y.at[0].multiply(jnp.cos(y[-1])),
    "dynamic_slice": lambda y: lax.dynamic_slice_in_dim(y, jnp.argmax(y) % 2, 2, -1) ** 2,
    "dynamic_update_slice": lambda y: lax.dynamic_update_slice_in_dim(y, y[..., :2] ** 2, 1, -1),
    "reduce_sum": lambda y: jnp.sin(y.sum(0)),
    "reduce_sum_all": lambda y: jnp.sin(y.sum()),
    "reduce_max": lambda y: jnp.sin(y.max(-1)),
    "reduce_min": lambda y: jnp.sin(y.min(0)),
    "reduce_prod": lambda y: jnp.prod(y, axis=-1),
    "argmax": lambda y: y * jnp.argmax(y, axis=-1, keepdims=True),
    "cumsum": lambda y: jnp.sin(jnp.cumsum(y, axis=-1)),
    "cumprod": lambda y: jnp.cumprod(y, axis=0),
    "cummax": lambda y: lax.cummax(y, axis=y.ndim - 1) * y,
    "cummin": lambda y: lax.cummin(y, axis=0) * y,
    "cumlogsumexp": lambda y: lax.cumlogsumexp(y, axis=y.ndim - 1),
    "sort": lambda y: jnp.sort(y, axis=-1) * MIXER[1],
    "argsort": lambda y: y * jnp.argsort(y, axis=-1),
    "top_k": lambda y: lax.top_k(jnp.sin(y), 2)[0] * lax.top_k(y, 2)[1],
    "reduce_window_sum": lambda y: _windows(y, 0.0, lax.add) ** 2,
    "reduce_window_max": lambda y: _windows(y, -jnp.inf, lax.max) ** 2,
    "conv_general_dilated": lambda y: jnp.tanh(_convolve(_image(y), KERNEL)),
    "conv_of_two": lambda y: _convolve(_image(y), jnp.sin(_image(y)[..., :3, :3])),
    "cholesky": lambda y: jnp.linalg.cholesky(_symmetric(y)),
    "triangular_solve": lambda y: lax.linalg.triangular_solve(
        _square_matrix(y), _square_matrix(y * y), left_side=True, lower=True
    ),
    "lu": lambda y: lax.linalg.lu(_square_matrix(y))[0],
    "qr": lambda y: jnp.linalg.qr(_square_matrix(y))[1],
    "eigh": lambda y: jnp.linalg.eigh(_symmetric(y))[0],
    "svd": lambda y: jnp.linalg.svd(_symmetric(y), compute_uv=False),
    "det": lambda y: jnp.linalg.det(_square_matrix(y)),
    "inv": lambda y: jnp.linalg.inv(_square_matrix(y)),
    "solve": lambda y: jnp.linalg.solve(_square_matrix(y), y[..., None]),
    "slogdet": lambda y: jnp.linalg.slogdet(_square_matrix(y)),
    "slogdet_complex": lambda y: jnp.linalg.slogdet(_square_matrix(y) + 1j * jnp.eye(3))[1],
    "expm": lambda y: jax.scipy.linalg.expm(0.1 * _square_matrix(y[:1])),
    "scan": lambda y: lax.scan(lambda c, row: (jnp.sin(c + row), c * row), y[0] * 0.5, y),
    "scan_reverse": lambda y: lax.scan(lambda c, row: (c * row, row * c), y[0], y, reverse=True),
    "while": lambda y: lax.while_loop(
        lambda s: s[0] < 3, lambda s: (s[0] + 1, jnp.sin(s[1] * y)), (0, y)
    )[1],
    "fori_loop": lambda y: lax.fori_loop(0, 3, lambda i, s: jnp.cos(s) * y + i, jnp.ones_like(y)),
    "cond": lambda y: lax.cond(y.sum() > 0, lambda z: jnp.sin(z), lambda z: z**2, y),
    "switch": lambda y: lax.switch(1, [jnp.sin, jnp.cos, jnp.exp], y),
    "jit": lambda y: jax.jit(lambda z: jnp.sin(z) * z)(y),
    "remat": lambda y: jax.checkpoint(lambda z: jnp.sin(z) * z)(y),
    "vmap": lambda y: jax.vmap(lambda z: jnp.sin(z) * z.sum())(y),
    "relu": lambda y: jax.nn.relu(y) * y,
    "silu": jax.nn.silu,
    "gelu": jax.nn.gelu,
    "softplus": jax.nn.softplus,
    "softmax": jax.nn.softmax,
    "logsumexp": lambda y: special.logsumexp(y, axis=0),
    "integers": lambda y: y * jnp.arange(3) * (y > 0),
}  # fmt: skip
