"""Compiled programs: what one run leaves in the cache serves the others of a sweep."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.run.harness import REPOSITORY, finish, make_run, start
from vmcjob.spec import FermiNet, JobSpec, dump_spec, read_spec

N_PHASES = 6  # each has a program of its own


def shortened(spec: JobSpec) -> JobSpec:
    """Programs of the same kinds, smaller, each run for a few steps."""
    return replace(
        spec,
        ansatz=FermiNet(determinants=1, layers=1, one_electron_width=4, two_electron_width=2),
        sampler=replace(spec.sampler, walkers=32, steps=2, warmup=2),
        pretrain=replace(spec.pretrain, steps=3),
        train=replace(spec.train, steps=3),
        evaluate=replace(spec.evaluate, steps=3, warmup=2),
    )


@pytest.mark.slow
def test_the_second_geometry_of_a_sweep_compiles_nothing(tmp_path: Path, monkeypatch) -> None:
    """From pressed together to nearly broken: nuclei and Hartree-Fock orbitals are arguments.

    Whatever is compiled goes into the cache here, however small it is, so a program that has a
    geometry in it shows as a file of its own.
    """
    cache = tmp_path / "cache"
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(cache))
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    points = read_spec(REPOSITORY / "jobs" / "h2_curve.toml").points
    first, *_, last = (shortened(point.spec) for point in points)
    programs = []
    for name, spec in (("first", first), ("last", last)):
        code, log = finish(start(make_run(tmp_path / name, dump_spec(spec))))
        assert code == 0, log
        programs.append({path.name for path in cache.iterdir() if path.name.endswith("-cache")})
    assert len(programs[0]) >= N_PHASES
    assert programs[1] - programs[0] == set()
