"""Compiled programs: what one run leaves in the cache serves the others of a sweep."""

import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.run.harness import REPOSITORY, assert_same, finish, make_run, results, start
from vmcjob.protocol import IMAGE_SHA256, JAX_CACHE
from vmcjob.run.calculation import build, make_system
from vmcjob.run.programs import SHORTEST, forget_oldest, keep_programs, processor
from vmcjob.spec import FermiNet, JobSpec, dump_spec, parse_spec
from vmcjob.vmc.hartree_fock import solve
from vmcjob.vmc.phases import Phase
from vmcjob.vmc.steps import StepOfPhase

N_PROGRAMS = 4  # to pretrain, to sample, to train, to measure


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


def first_and_last() -> list[JobSpec]:
    """A sweep from pressed together to nearly broken: its ends, each from Hartree–Fock."""
    text = (REPOSITORY / "jobs" / "h2_curve.toml").read_text("utf-8")
    points = parse_spec(text.replace('start_from = "@previous"', ""), "h2_curve.toml").points
    return [shortened(point.spec) for point in (points[0], points[-1])]


def traced(spec: JobSpec) -> dict[str, str]:
    """The programs of all phases of a run, as XLA gets them."""
    calculation = build(spec, solve(make_system(spec.system), "sto-3g"))
    first = calculation.initial_state()
    later = calculation.after_pretraining(first)
    begin = calculation._begin.lower(calculation._initial_key(), calculation.vmc.nuclei)
    programs = {"begin": begin.as_text()}
    for phase in Phase:
        step = calculation.step_of(phase)
        assert isinstance(step, StepOfPhase)
        lowered = step.lower(first if phase is Phase.PRETRAIN else later)
        programs[phase] = lowered.as_text()
    return programs


def test_the_programs_of_a_sweep_know_no_geometry() -> None:
    """Nuclei and Hartree–Fock orbitals are arguments, so that a second geometry compiles nothing.

    Whoever keeps programs keeps each by the text that XLA gets.
    """
    one, other = map(traced, first_and_last())
    assert one.keys() == other.keys()
    for name, text in one.items():
        assert text == other[name], f"{name}: a geometry is compiled into the program"


@pytest.mark.full_matrix  # whether programs have a geometry in them: the test before
@pytest.mark.slow
def test_the_second_geometry_of_a_sweep_compiles_nothing(tmp_path: Path, monkeypatch) -> None:
    """Nor do any small programs between the steps.

    Whatever is compiled goes into the cache here, however small it is, so a program that has a
    geometry in it shows as a file of its own.
    """
    cache = tmp_path / "cache"
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(cache))
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    programs = []
    for name, spec in zip(("first", "last"), first_and_last(), strict=True):
        code, log = finish(start(make_run(tmp_path / name, dump_spec(spec))))
        assert code == 0, log
        programs.append({path.name for path in cache.iterdir() if path.name.endswith("-cache")})
    assert len(programs[0]) >= N_PROGRAMS
    assert programs[1] - programs[0] == set()


@pytest.mark.full_matrix  # JAX keeps them; a second geometry finds them, below
@pytest.mark.slow
def test_programs_are_kept_without_being_asked_and_damaged_ones_change_nothing(
    tmp_path: Path, monkeypatch
) -> None:
    """A killed worker may leave half a program; the next one compiles it again."""
    monkeypatch.delenv(JAX_CACHE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    runs = []
    for name in ("first", "second"):
        runs.append(make_run(tmp_path / name))
        code, log = finish(start(runs[-1], is_fork=False))
        assert code == 0, log
        kept = sorted((tmp_path / "home" / "vmcjob" / "compiled" / processor()).iterdir())
        assert len(kept) >= N_PROGRAMS - 1  # without pretraining
        for path in kept:
            os.truncate(path, path.stat().st_size // 2)
    assert_same(*map(results, runs))


@pytest.fixture
def surroundings(tmp_path: Path, monkeypatch) -> Iterator[Path]:
    """The user's cache, before anybody has kept a program; what is set is unset again."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(SHORTEST, "1")
    monkeypatch.setenv(JAX_CACHE, "")
    del os.environ[JAX_CACHE]
    yield tmp_path / "vmcjob" / "compiled" / processor()
    os.environ.pop(JAX_CACHE, None)


def test_a_folder_is_made_for_its_owner_alone(surroundings: Path) -> None:
    keep_programs()
    assert os.environ[JAX_CACHE] == str(surroundings)
    assert stat.S_IMODE(surroundings.stat().st_mode) == 0o700


def test_nothing_is_kept_where_others_may_write(surroundings: Path) -> None:
    surroundings.mkdir(parents=True)
    surroundings.chmod(0o770)
    keep_programs()
    assert JAX_CACHE not in os.environ


def test_nothing_is_kept_where_no_folder_can_be_made(surroundings: Path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    keep_programs()
    assert JAX_CACHE not in os.environ


@pytest.mark.parametrize("name", [JAX_CACHE, IMAGE_SHA256])
def test_who_says_where_is_heeded(surroundings: Path, monkeypatch, name: str) -> None:
    monkeypatch.setenv(name, "elsewhere")
    keep_programs()
    assert os.environ.get(JAX_CACHE, "") in ("", "elsewhere")
    assert not surroundings.exists()


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    for age, name in enumerate("abc"):
        path = tmp_path / name
        path.write_bytes(bytes(100))
        os.utime(path, (1e9 - age, 1e9 - age))
    forget_oldest(tmp_path, 250)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
    forget_oldest(tmp_path / "absent", 0)
