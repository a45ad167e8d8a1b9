"""What a job says about itself."""

import math

import pytest

from vmcjob.spec import Atom, JobSpec, Kfac, Resources, System, parse_spec


def only_job(text: str) -> JobSpec:
    """The job of a spec that makes no more than one."""
    (point,) = parse_spec(text, "job.toml").points
    return point.spec


def molecule(keys: str) -> System:
    return only_job(f'name = "mol"\n[system]\n{keys}\n').system


def test_the_smallest_spec_is_a_name_and_a_system() -> None:
    """Everything else has a default, the one that the dataclass shows."""
    job = only_job('name = "he"\n[system]\natoms = [["He", 0, 0, 0]]\n')
    assert job == JobSpec(name="he", system=System((Atom("He", (0.0, 0.0, 0.0)),)))


def test_integers_become_floats_where_floats_are_asked_for() -> None:
    """A walker array made of integers would be truncated, so no integer may slip through."""
    job = only_job('name = "he"\nsystem.atoms = [["He", 0, 1, 2]]\nsampler.width = 1\n')
    numbers = [*job.system.atoms[0].position, job.sampler.width]
    assert [type(number) for number in numbers] == [float] * 4


def test_a_negative_zero_is_a_zero() -> None:
    """Otherwise -0.0 and 0.0 would hash to two different runs of one molecule."""
    system = molecule('atoms = [["H", -0.0, 0, 0]]')
    assert math.copysign(1.0, system.atoms[0].position[0]) == 1.0


def test_angstroms_become_bohr() -> None:
    """The bond of H2, 0.74 Å, is the well-known 1.4 bohr; the factor is CODATA's of 2022."""
    system = molecule('atoms = [["H", 0, 0, 0], ["H", 0, 0, 0.529177210544]]\nunit = "angstrom"')
    assert system.atoms[1].position == pytest.approx((0.0, 0.0, 1.0), abs=1e-15)


def test_nuclei_are_kept_apart_in_bohr_whatever_the_unit() -> None:
    """0.0006 angstrom are more than 0.001 bohr: a check before the conversion would refuse."""
    assert molecule('atoms = [["H", 0, 0, 0], ["H", 0, 0, 0.0006]]\nunit = "angstrom"')


@pytest.mark.parametrize(
    ("keys", "n_up", "n_down"),
    [
        ('atoms = [["H", 0, 0, 0]]', 1, 0),
        ('atoms = [["He", 0, 0, 0]]', 1, 1),
        ('atoms = [["He", 0, 0, 0]]\nspin = 2', 2, 0),
        ('atoms = [["N", 0, 0, 0]]\nspin = 3', 5, 2),
        ('atoms = [["Li", 0, 0, 0]]\ncharge = 1', 1, 1),
        ('atoms = [["H", 0, 0, 0]]\ncharge = -1', 1, 1),
        ('atoms = [["O", 0, 0, 0], ["O", 0, 0, 2.28]]\nspin = 2', 9, 7),
    ],
)
def test_electrons_are_shared_between_the_spins(keys: str, n_up: int, n_down: int) -> None:
    """Spin counts unpaired electrons; left out, it is the lowest that their number allows."""
    system = molecule(keys)
    assert (system.n_up, system.n_down) == (n_up, n_down)
    assert system.n_electrons == n_up + n_down


def test_nuclear_charges_follow_the_periodic_table() -> None:
    """A symbol left out of the table would shift every later one: sample the ends of the rows."""
    symbols = {
        "H": 1,
        "He": 2,
        "Ne": 10,
        "Ar": 18,
        "Fe": 26,
        "Kr": 36,
        "Xe": 54,
        "Rn": 86,
        "Og": 118,
    }
    system = System(tuple(Atom(symbol, (0.0, 0.0, 0.0)) for symbol in symbols))
    assert system.charges == tuple(symbols.values())


def test_an_adapted_damping_has_a_pace_and_limits() -> None:
    """A hundredth and a hundred times its start, unless given; a resolved spec has all of them."""
    text = 'name = "he"\nsystem.atoms = [["He", 0, 0, 0]]\n[optimizer]\nkind = "kfac"\n'
    adapted = "damping = 0.5\ndamping_adaptation_period = 3\ndamping_maximum = 2.0\n"
    found = only_job(text + adapted).optimizer
    assert isinstance(found, Kfac)
    assert (found.damping_adaptation_decay, found.damping_minimum) == (0.95, 0.005)
    assert found.damping_maximum == 2.0
    fixed = only_job(text).optimizer
    assert isinstance(fixed, Kfac)
    assert fixed.damping_adaptation_decay is fixed.damping_minimum is fixed.damping_maximum is None


@pytest.mark.parametrize(
    ("more", "clip"),
    [
        ("", 5.0),
        ('system.ecp = "ccecp"', 50.0),
        ('system.ecp = "ccecp"\noptimizer.clip = 7.0', 7.0),
        ('system.ecp = "ccecp"\noptimizer.kind = "kfac"', 50.0),
    ],
)
def test_local_energies_are_clipped_less_with_core_potentials(more: str, clip: float) -> None:
    """Rare walkers inside cores are heard. All-electron jobs keep their numbers and ids."""
    text = f'name = "x"\nsystem.atoms = [["Na", 0, 0, 0]]\nsystem.spin = 1\n{more}\n'
    assert parse_spec(text, "x.toml").points[0].spec.optimizer.clip == clip


@pytest.mark.parametrize(
    ("time", "seconds"),
    [("00:30:00", 1800.0), ("2:00:05", 7205.0), ("1-12:00:00", 129600.0), ("100:00:00", 360000.0)],
)
def test_wall_times_are_read_as_sbatch_reads_them(time: str, seconds: float) -> None:
    """The deadline of a run is computed from this."""
    job = only_job(f'name = "he"\nsystem.atoms = [["He", 0, 0, 0]]\nresources.time = "{time}"\n')
    assert job.resources.time_s == seconds


def test_no_wall_time_is_none() -> None:
    """Zero would stop a run before it starts."""
    assert Resources().time_s is None
