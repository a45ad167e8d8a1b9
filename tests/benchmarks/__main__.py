"""All that is measured in ratios, in one table, kept with its commit and machine.

    python -m tests.benchmarks --keep ratios.jsonl
    python -m tests.benchmarks --jobs jobs/h2.toml --electrons 4 10 --size paper

Training steps against their floors, the parts of a step in passes of log|ψ|, and Laplacians of
folx, the best way of each kind, over ours (pip install folx). With `--keep` the file gains a line
of JSON, and what its last line says stands beside the new ratios.
"""

import argparse
import json
import os
import platform
import subprocess
from argparse import Namespace
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax

from tests.benchmarks import laplacian
from tests.benchmarks.optimizers import begin
from tests.benchmarks.parts import time_step
from tests.benchmarks.step import placed, prepared
from tests.fwdlap.networks import NETWORKS, hydrogen_chain
from vmcjob.run.calculation import build, configure_jax

JOBS = [Path("jobs") / f"{name}.toml" for name in ("h2", "lih", "be")]
PACKAGES = "jax", "jaxlib", "flax", "kfac-jax", "folx"
CPUINFO = Path("/proc/cpuinfo")


def of_steps(jobs: Sequence[Path], n_rounds: int) -> Iterator[tuple[str, float]]:
    """A training step over its floor, and its parts in passes of log|ψ| over all walkers."""
    for job in jobs:
        spec = prepared(job)
        configure_jax(spec.numerics)
        vmc = build(spec).vmc
        times = time_step(vmc, placed(vmc, begin(spec)), 0, n_rounds)
        yield f"{spec.name}: step / floor", times.step / times.floor
        for name, seconds in {"step": times.step, **times.parts}.items():
            yield f"{spec.name}: {name} / pass", seconds / times.one_pass
        jax.clear_caches()


def of_laplacians(options: Namespace) -> Iterator[tuple[str, float]]:
    """The best of folx over all walkers at once, and by some of them, over ours."""
    for network in NETWORKS:
        for n in options.electrons:
            runs = laplacian.measure(network, hydrogen_chain(n), options)
            where, ours = f"{network}, {options.size}, {n} electrons", runs["vmcjob"].ms
            yield f"{where}: ours / pass", ours / runs["forward"].ms
            by_some = {name for name in runs if " by " in name}
            whole = {name for name in runs if name.startswith("folx")} - by_some
            for kind, names in (("whole", whole), ("by some", by_some)):
                if names:
                    yield f"{where}: folx {kind} / ours", min(runs[n].ms for n in names) / ours
            jax.clear_caches()


def machine() -> dict[str, Any]:
    """What ratios may depend on."""
    lines = CPUINFO.read_text().splitlines() if CPUINFO.exists() else []
    models = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return {
        "processor": models[0] if models else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "devices": str(jax.devices()[0].device_kind),
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def last(path: Path | None) -> dict[str, float]:
    """The ratios that were kept last."""
    lines = path.read_text().splitlines() if path is not None and path.exists() else []
    return json.loads(lines[-1])["ratios"] if lines else {}


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--jobs", nargs="*", type=Path, default=JOBS)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--electrons", nargs="*", type=int, default=[4, 10])
    parser.add_argument("--size", choices=list(laplacian.SIZES), default="small")
    parser.add_argument("--walkers", type=int, default=64, help="of Laplacians")
    parser.add_argument("--repeats", type=int, default=9, help="of Laplacians")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="gains a line of JSON")
    parser.set_defaults(methods=None, hessian=False, floor=False)
    options = parser.parse_args()
    before, found = last(options.keep), {}
    print("| what | ratio | before |\n|---|---|---|")
    for measured in (of_steps(options.jobs, options.rounds), of_laplacians(options)):
        for name, ratio in measured:
            found[name] = ratio
            old = f"{before[name]:.2f}" if name in before else ""
            print(f"| {name} | {ratio:.2f} | {old} |", flush=True)
    if options.keep is not None:
        describe = ["git", "describe", "--always", "--dirty"]
        commit = subprocess.check_output(describe, text=True, cwd=Path(__file__).parent).strip()
        line = {"commit": commit, "machine": machine(), "ratios": found}
        with open(options.keep, "a") as file:
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
