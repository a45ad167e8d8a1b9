"""Times and checks local kinetic energies: this package against the ways peers take.

    python -m tests.benchmarks.laplacian --electrons 4 10 --size small
    python -m tests.benchmarks.laplacian --accuracy

One process, the same function, parameters and walkers for every method, float32, jitted,
medians of interleaved runs. folx joins in where it is installed.
"""

import argparse
import importlib.util
import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np

from tests.fwdlap.networks import (
    NETWORKS,
    PAPER,
    SMALL,
    Molecule,
    Size,
    hydrogen_chain,
    initial_walkers,
)
from vmcjob import fwdlap
from vmcjob.fwdlap.chunks import chunk_size

LogPsi = Callable[[jax.Array], jax.Array]
Method = Callable[[LogPsi, jax.Array], jax.Array]

SIZES = {"small": SMALL, "paper": PAPER}


def kinetic(laplacian: jax.Array, gradient: jax.Array) -> jax.Array:
    """Local kinetic energy from the derivatives of log|psi|."""
    return -0.5 * (laplacian + jnp.sum(gradient**2))


def by_forward_pass(log_psi: LogPsi, walkers: jax.Array) -> jax.Array:
    """No derivative at all: the unit the others are measured in."""
    return jax.vmap(log_psi)(walkers)


def our_energy(log_psi: LogPsi, r: jax.Array) -> jax.Array:
    """The forward Laplacian of one walker."""
    jet = fwdlap.laplacian(log_psi)(r)
    return kinetic(jet.laplacian, jet.gradient)


def by_this_package(log_psi: LogPsi, walkers: jax.Array) -> jax.Array:
    """The forward Laplacian, chunked by its own budget."""
    return fwdlap.over_walkers(partial(our_energy, log_psi))(walkers)


def by_jvp_of_grad(log_psi: LogPsi, walkers: jax.Array) -> jax.Array:
    """A loop over directions of one Hessian-vector product each, as ferminet does by default."""

    def energy(r: jax.Array) -> jax.Array:
        gradient = jax.grad(lambda x: log_psi(x.reshape(r.shape)))
        eye = jnp.eye(r.size, dtype=r.dtype)
        value, push = jax.linearize(gradient, r.reshape(-1))
        zero = jnp.zeros((), r.dtype)
        total = jax.lax.fori_loop(0, r.size, lambda i, s: s + push(eye[i])[i], zero)
        return kinetic(total, value)

    return jax.vmap(energy)(walkers)


def by_hessian(log_psi: LogPsi, walkers: jax.Array) -> jax.Array:
    """The trace of the full Hessian."""

    def energy(r: jax.Array) -> jax.Array:
        def flat(x: jax.Array) -> jax.Array:
            return log_psi(x.reshape(r.shape))

        x = r.reshape(-1)
        return kinetic(jnp.trace(jax.hessian(flat)(x)), jax.grad(flat)(x))

    return jax.vmap(energy)(walkers)


def by_folx(sparsity: int, chunk: int | None, log_psi: LogPsi, walkers: jax.Array) -> jax.Array:
    """folx, over the whole batch as peers call it, or chunked by hand."""
    import folx  # pyright: ignore[reportMissingImports] -- a peer, not a dependency

    forward = folx.forward_laplacian(log_psi, sparsity_threshold=sparsity)

    def energy(r: jax.Array) -> jax.Array:
        out = forward(r)
        return kinetic(out.laplacian, out.jacobian.dense_array)

    return jax.lax.map(energy, walkers, batch_size=chunk) if chunk else jax.vmap(energy)(walkers)


def methods(*, with_hessian: bool) -> dict[str, Method]:
    """All contestants by the name their column carries."""
    found: dict[str, Method] = {"forward": by_forward_pass, "vmcjob": by_this_package}
    found["jvp-of-grad"] = by_jvp_of_grad
    if with_hessian:
        found["hessian"] = by_hessian
    if importlib.util.find_spec("folx") is not None:
        for sparsity in (0, 6):
            found[f"folx {sparsity}"] = partial(by_folx, sparsity, None)
            for chunk in (4, 8):
                found[f"folx {sparsity} by {chunk}"] = partial(by_folx, sparsity, chunk)
    return found


class Run:
    """One compiled function with its timings."""

    def __init__(self, fun: Callable[..., Any], *args: Any, n_calls: int = 1):
        start = time.perf_counter()
        self.compiled = jax.jit(fun).lower(*args).compile()
        self.compile_s = time.perf_counter() - start
        memory = self.compiled.memory_analysis()
        self.mib = memory.temp_size_in_bytes / 2**20 if memory else float("nan")
        self.call, self.n_calls = partial(self.compiled, *args), n_calls
        self.seconds: list[float] = []
        jax.block_until_ready(self.call())

    def once(self) -> None:
        start = time.perf_counter()
        jax.block_until_ready([self.call() for _ in range(self.n_calls)])
        self.seconds.append(time.perf_counter() - start)

    @property
    def ms(self) -> float:
        return 1e3 * float(np.median(self.seconds))


def products_alone(log_psi: LogPsi, walkers: jax.Array) -> Run:
    """The floor: the matrix products in what this package computes, and nothing else of it."""
    energy = partial(our_energy, log_psi)
    n = chunk_size(energy, walkers)
    products = matrix_products(energy, walkers[:n])
    shared: dict[tuple[int, ...], jax.Array] = {}
    operands = []
    for index, product in enumerate(products):
        shapes = [atom.aval.shape for atom in product.invars]
        larger = int(math.prod(shapes[1]) > math.prod(shapes[0]))
        pair = [jnp.full(shape, 1.0 + index) for shape in shapes]  # no two products are the same
        # Jacobians are in the cache when their product is due: here too, as far as can be.
        pair[larger] = shared.setdefault(shapes[larger], pair[larger])
        operands.append(tuple(pair))

    def multiply(operands: Sequence[tuple[jax.Array, jax.Array]]) -> list[jax.Array]:
        return [
            jax.lax.dot_general_p.bind(*pair, **product.params)
            for product, pair in zip(products, operands, strict=True)
        ]

    return Run(multiply, operands, n_calls=-(-len(walkers) // n))


def matrix_products(fun: LogPsi, walkers: jax.Array) -> list[Any]:
    """The equations of all matrix products in a function of one walker, for a batch of them."""

    def found(jaxpr: Any) -> Iterator[Any]:
        for eqn in jaxpr.eqns:
            if eqn.primitive is jax.lax.dot_general_p:
                yield eqn
            for inner in eqn.params.values():
                if isinstance(inner, jax.extend.core.ClosedJaxpr):
                    yield from found(inner.jaxpr)

    return list(found(jax.make_jaxpr(jax.vmap(fun))(walkers).jaxpr))


def n_operations(fun: LogPsi, walkers: jax.Array) -> int:
    """Multiplications in the matrix products of a function of one walker, for one of them."""

    def count(product: Any) -> int:
        left, contracted = product.invars[0].aval.shape, product.params["dimension_numbers"][0][0]
        return math.prod(product.outvars[0].aval.shape) * math.prod(left[i] for i in contracted)

    return sum(map(count, matrix_products(fun, walkers[:1])))


def measure(name: str, molecule: Molecule, args: argparse.Namespace) -> dict[str, Run]:
    """Compile every method, then take turns."""
    init, network = NETWORKS[name]
    params = init(jax.random.key(0), molecule, SIZES[args.size])
    walkers = initial_walkers(jax.random.key(1), molecule, args.walkers)

    def log_psi(p: Any, r: jax.Array) -> jax.Array:
        return network(p, molecule, r)

    chosen = methods(with_hessian=args.hessian)
    if args.methods:
        chosen = {key: chosen[key] for key in ("forward", "vmcjob", *args.methods)}
    runs = {}
    for key, method in chosen.items():
        # Parameters are arguments: as constants, XLA would fold the ones among them.
        runs[key] = Run(lambda p, x, by=method: by(partial(log_psi, p), x), params, walkers)
    if args.floor:
        psi = partial(log_psi, params)
        runs["products alone"] = products_alone(psi, walkers)
        ratio = n_operations(partial(our_energy, psi), walkers) / n_operations(psi, walkers)
        print(f"| {name} | {walkers.shape[1]} | multiplications | | | {ratio:.0f} | | |")
    for _ in range(args.repeats):
        for run in runs.values():
            run.once()
    return runs


def report(name: str, n: int, runs: dict[str, Run]) -> None:
    """One row per method: time, its ratio to ours and to a forward pass, compilation, memory."""
    ours, forward = runs["vmcjob"].ms, runs["forward"].ms
    for key, run in runs.items():
        print(
            f"| {name} | {n} | {key} | {run.ms:.1f} | {run.ms / ours:.2f} | {run.ms / forward:.0f}"
            f" | {run.compile_s:.1f} | {run.mib:.1f} |",
            flush=True,
        )


def nitrogen() -> Molecule:
    """N2 at its bond length, 2.068 bohr."""
    return Molecule(jnp.array([[0.0, 0.0, -1.034], [0.0, 0.0, 1.034]]), 7, 7)


def equilibrate(log_psi: LogPsi, walkers: jax.Array, n_steps: int = 100) -> jax.Array:
    """Walkers drawn from |psi|^2 by plain Metropolis moves."""

    def step(r: jax.Array, key: jax.Array) -> tuple[jax.Array, None]:
        k_move, k_accept = jax.random.split(key)
        new = r + 0.15 * jax.random.normal(k_move, r.shape)
        gain = 2.0 * (jax.vmap(log_psi)(new) - jax.vmap(log_psi)(r))
        accept = jnp.log(jax.random.uniform(k_accept, gain.shape)) < gain
        return jnp.where(accept[:, None, None], new, r), None

    keys = jax.random.split(jax.random.key(2), n_steps)
    return jax.jit(lambda r: jax.lax.scan(step, r, keys)[0])(walkers)


def relative_errors(
    name: str, size: Size, n_walkers: int, chosen: dict[str, Method]
) -> dict[str, np.ndarray]:
    """Of N2's local kinetic energies in float32, one per walker, against float64 jvp-of-grad.

    Same parameters, and same walkers, drawn from the network's own density.
    """
    init, network = NETWORKS[name]
    molecule = nitrogen()
    params = init(jax.random.key(0), molecule, size)
    walkers = initial_walkers(jax.random.key(1), molecule, n_walkers)
    walkers = equilibrate(lambda r: network(params, molecule, r), walkers)

    def energies(method: Method, world: Any, r: jax.Array) -> np.ndarray:
        def log_psi(w: Any, x: jax.Array) -> jax.Array:
            return network(w[0], molecule._replace(nuclei=w[1]), x)

        return np.asarray(jax.jit(lambda w, x: method(partial(log_psi, w), x))(world, r))

    single = ((params, molecule.nuclei), walkers)
    found = {key: energies(method, *single) for key, method in chosen.items()}
    host = jax.tree.map(np.asarray, single)
    with jax.enable_x64(True):
        double = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), host)
        exact = energies(by_jvp_of_grad, *double)
    return {key: np.abs(values - exact) / np.abs(exact) for key, values in found.items()}


def report_accuracy(name: str, args: argparse.Namespace) -> None:
    """One row per method: median and 95th percentile of the relative errors."""
    chosen = {k: m for k, m in methods(with_hessian=False).items() if " by " not in k}
    del chosen["forward"]
    for key, error in relative_errors(name, SIZES[args.size], args.walkers, chosen).items():
        print(f"| {name} | {key} | {np.median(error):.1e} | {np.percentile(error, 95):.1e} |")


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--network", nargs="+", default=list(NETWORKS))
    parser.add_argument("--electrons", nargs="+", type=int, default=[2, 4, 10])
    parser.add_argument("--size", choices=list(SIZES), default="small")
    parser.add_argument("--walkers", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--methods", nargs="+", help="columns beside forward and vmcjob")
    parser.add_argument("--hessian", action="store_true", help="also the full Hessian")
    parser.add_argument("--floor", action="store_true", help="also our products alone")
    parser.add_argument("--accuracy", action="store_true", help="float32 errors for N2 instead")
    args = parser.parse_args(arguments)
    if args.accuracy:
        print("| network | method | median | 95 % |\n|---|---|---|---|")
        for name in args.network:
            report_accuracy(name, args)
        return
    print("| network | electrons | method | ms | / vmcjob | / forward | compile s | temp MiB |")
    print("|---|---|---|---|---|---|---|---|")
    for name in args.network:
        for n in args.electrons:
            report(name, n, measure(name, hydrogen_chain(n), args))


if __name__ == "__main__":
    main()
