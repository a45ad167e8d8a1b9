"""FermiNet and Psiformer in plain JAX, as peers write them: functions to differentiate and time."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Params = Any  # a pytree of arrays


class Size(NamedTuple):
    """Widths of a network."""

    layers: int
    one: int  # width of the one-electron stream
    two: int  # width of the two-electron stream (FermiNet)
    heads: int  # attention heads (Psiformer)
    determinants: int


SMALL = Size(layers=2, one=32, two=8, heads=4, determinants=4)
PAPER = Size(layers=4, one=256, two=32, heads=4, determinants=16)


class Molecule(NamedTuple):
    """Nuclei and the numbers of electrons of either spin."""

    nuclei: jax.Array  # nuc 3
    n_up: int
    n_down: int


def hydrogen_chain(n: int, spacing: float = 1.8) -> Molecule:
    """`n` protons in a row, as many electrons, lowest spin."""
    nuclei = jnp.arange(n)[:, None] * jnp.array([spacing, 0.0, 0.0])
    return Molecule(nuclei - nuclei.mean(0), n - n // 2, n // 2)


def initial_walkers(key: jax.Array, molecule: Molecule, n_walkers: int) -> jax.Array:
    """Electrons scattered around the nuclei, (walker, elec, 3)."""
    n = molecule.n_up + molecule.n_down
    home = molecule.nuclei[jnp.arange(n) % len(molecule.nuclei)]
    return home + jax.random.normal(key, (n_walkers, n, 3), molecule.nuclei.dtype)


def _dense(key: jax.Array, n_in: int, n_out: int) -> dict[str, jax.Array]:
    k_w, k_b = jax.random.split(key)
    return {
        "w": jax.random.normal(k_w, (n_in, n_out)) / jnp.sqrt(n_in),
        "b": 0.1 * jax.random.normal(k_b, (n_out,)),
    }


def _apply(layer: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    return x @ layer["w"] + layer["b"]


def _head(key: jax.Array, molecule: Molecule, size: Size) -> Params:
    n = molecule.n_up + molecule.n_down
    k_up, k_down = jax.random.split(key)
    envelope = {
        "decay": jnp.ones((len(molecule.nuclei), size.determinants * n)),
        "weight": jnp.ones((len(molecule.nuclei), size.determinants * n)),
    }
    return {
        "up": _dense(k_up, size.one, size.determinants * n) | envelope,
        "down": _dense(k_down, size.one, size.determinants * n) | envelope,
    }


def _orbitals(spin: Params, h: jax.Array, distance: jax.Array, n_det: int) -> jax.Array:
    """Dense matrices of one spin block, (determinant, elec of the block, orbital)."""
    decay = jnp.exp(-distance[..., None] * spin["decay"])
    envelope = jnp.sum(decay * spin["weight"], axis=1)
    orbitals = _apply(spin, h) * envelope
    return jnp.moveaxis(orbitals.reshape(len(h), n_det, -1), 0, 1)


def _log_determinants(head: Params, h: jax.Array, distance: jax.Array, n_up: int) -> jax.Array:
    """log |sum of determinants| of the one-electron features."""
    n_det = head["up"]["w"].shape[1] // len(h)
    blocks = [_orbitals(head["up"], h[:n_up], distance[:n_up], n_det)]
    if n_up < len(h):
        blocks.append(_orbitals(head["down"], h[n_up:], distance[n_up:], n_det))
    sign, log = jnp.linalg.slogdet(jnp.concatenate(blocks, axis=1))
    top = jax.lax.stop_gradient(jnp.max(log))
    return jnp.log(jnp.abs(jnp.sum(sign * jnp.exp(log - top)))) + top


def _distances(molecule: Molecule, r: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Vectors electron - nucleus (elec, nuc, 3) and their lengths."""
    ae = r[:, None] - molecule.nuclei
    return ae, jnp.linalg.norm(ae, axis=-1)


def init_ferminet(key: jax.Array, molecule: Molecule, size: Size) -> Params:
    """Parameters of `ferminet`."""
    k_head, *keys = jax.random.split(key, 2 * size.layers + 1)
    one, two = 4 * len(molecule.nuclei), 4
    streams = []
    for i in range(size.layers):
        layer = {"one": _dense(keys[2 * i], 3 * one + 2 * two, size.one)}
        if i + 1 < size.layers:
            layer["two"] = _dense(keys[2 * i + 1], two, size.two)
        streams.append(layer)
        one, two = size.one, size.two
    return {"streams": streams, "head": _head(k_head, molecule, size)}


def _mixed(h: jax.Array, g: jax.Array, n_up: int) -> jax.Array:
    """Each electron's features beside the means over either spin, as FermiNet mixes them."""
    spins = [s for s in (slice(None, n_up), slice(n_up, None)) if h[s].shape[0]]
    means = [jnp.tile(h[s].mean(0, keepdims=True), (len(h), 1)) for s in spins]
    pairs = [g[:, s].mean(1) for s in spins]
    if len(spins) == 1:
        means, pairs = means * 2, pairs * 2
    return jnp.concatenate([h, *means, *pairs], axis=1)


def ferminet(params: Params, molecule: Molecule, r: jax.Array) -> jax.Array:
    """log |psi| of one walker (elec, 3)."""
    n = len(r)
    ae, distance = _distances(molecule, r)
    ee = r[:, None] - r[None]
    eye = jnp.eye(n)
    length = jnp.linalg.norm(ee + eye[..., None], axis=-1) * (1.0 - eye)
    h = jnp.concatenate([ae, distance[..., None]], axis=2).reshape(n, -1)
    g = jnp.concatenate([ee, length[..., None]], axis=2)
    for layer in params["streams"]:
        new = jnp.tanh(_apply(layer["one"], _mixed(h, g, molecule.n_up)))
        h = new + h if new.shape == h.shape else new
        if "two" in layer:
            wide = jnp.tanh(_apply(layer["two"], g))
            g = wide + g if wide.shape == g.shape else wide
    return _log_determinants(params["head"], h, distance, molecule.n_up)


def init_psiformer(key: jax.Array, molecule: Molecule, size: Size) -> Params:
    """Parameters of `psiformer`."""
    k_embed, k_head, *keys = jax.random.split(key, size.layers + 2)
    n_in = 4 * len(molecule.nuclei) + 1
    layers = []
    for k in keys:
        k_q, k_k, k_v, k_o, k_m = jax.random.split(k, 5)
        square = {"q": k_q, "k": k_k, "v": k_v, "o": k_o, "mlp": k_m}
        layers.append({name: _dense(each, size.one, size.one) for name, each in square.items()})
    return {
        "embed": _dense(k_embed, n_in, size.one),
        "layers": layers,
        "head": _head(k_head, molecule, size),
        "heads": jnp.zeros((size.heads,)),
        "jastrow": jnp.ones((2,)),
    }


def _attention(layer: Params, h: jax.Array, n_heads: int) -> jax.Array:
    n, width = h.shape
    q, k, v = (_apply(layer[name], h).reshape(n, n_heads, -1) for name in ("q", "k", "v"))
    logits = jnp.einsum("ihd,jhd->hij", q, k) / jnp.sqrt(width // n_heads)
    mixed = jnp.einsum("hij,jhd->ihd", jax.nn.softmax(logits, axis=-1), v)
    return _apply(layer["o"], mixed.reshape(n, width))


def layer_norm(x: jax.Array) -> jax.Array:
    """Zero mean and unit variance over the last axis."""
    mean = x.mean(-1, keepdims=True)
    variance = jnp.mean((x - mean) ** 2, axis=-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5)


def psiformer(params: Params, molecule: Molecule, r: jax.Array) -> jax.Array:
    """log |psi| of one walker (elec, 3)."""
    n = len(r)
    ae, distance = _distances(molecule, r)
    scale = jnp.log1p(distance) / distance
    spin = jnp.where(jnp.arange(n) < molecule.n_up, 1.0, -1.0)[:, None]
    features = jnp.concatenate([ae * scale[..., None], jnp.log1p(distance)[..., None]], axis=2)
    h = _apply(params["embed"], jnp.concatenate([features.reshape(n, -1), spin], axis=1))
    for layer in params["layers"]:
        h = h + _attention(layer, layer_norm(h), len(params["heads"]))
        h = h + jnp.tanh(_apply(layer["mlp"], layer_norm(h)))
    same = spin * spin.T > 0
    eye = jnp.eye(n)
    length = jnp.linalg.norm(r[:, None] - r[None] + eye[..., None], axis=-1)
    alpha = jnp.where(same, params["jastrow"][0], params["jastrow"][1])
    cusp = jnp.where(same, 0.25, 0.5) * alpha**2 / (alpha + length) * (1.0 - eye)
    log = _log_determinants(params["head"], h, distance, molecule.n_up)
    return log - 0.5 * jnp.sum(cusp)


NETWORKS = {"ferminet": (init_ferminet, ferminet), "psiformer": (init_psiformer, psiformer)}
