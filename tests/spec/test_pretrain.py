"""How a run begins by default: to which Hartree–Fock solution, and after how much pretraining."""

import pytest

from vmcjob.errors import SpecError
from vmcjob.spec import JobSpec, parse_spec, science_sha256

HYDROGEN = 'atoms = [["H", 0, 0, 0], ["H", 0, 0, 4]]'
HYDRIDE = 'atoms = [["Li", 0, 0, 0], ["H", 0, 0, 3]]'
LITHIUM = 'atoms = [["Li", 0, 0, 0]]'


def spec_of(system: str, pretrain: str = "", rest: str = "") -> JobSpec:
    """The job of a spec that says no more than this."""
    text = f'name = "x"\n[system]\n{system}\n[pretrain]\n{pretrain}\n{rest}'
    return parse_spec(text, "job.toml").points[0].spec


@pytest.mark.parametrize(
    ("system", "pretrain", "wanted"),
    [
        (HYDRIDE, "", "half-projected"),
        (HYDRIDE, 'method = "stable"', "stable"),
        (HYDRIDE, "active_space = [2, 2]", "stable"),
        (HYDRIDE, "steps = 0", "stable"),
        (LITHIUM, "", "stable"),
        (LITHIUM, 'method = "half-projected"', "stable"),
        (LITHIUM, 'method = "rohf"', "rohf"),
    ],
)
def test_only_closed_shells_have_partners(system: str, pretrain: str, wanted: str) -> None:
    """Elsewhere the numbers are those of "stable": another id would split the pool of one job."""
    spec = spec_of(system, pretrain)
    assert spec.pretrain.method == wanted
    if wanted == "stable" and "method" not in pretrain:
        named = spec_of(system, f'{pretrain}\nmethod = "stable"')
        assert science_sha256(named) == science_sha256(spec)


def test_kfac_is_not_given_a_function_without_layers() -> None:
    """It would go on with diagonals in place of Kronecker factors, and say so nowhere."""
    rest = '[ansatz]\nspin_symmetric = true\n[optimizer]\nkind = "kfac"'
    with pytest.raises(SpecError, match=r"spin_symmetric: kfac .*; use spring"):
        spec_of(HYDRIDE, rest=rest)


def test_only_as_many_electrons_of_either_spin_can_be_exchanged() -> None:
    """With unequal numbers no electron would be there to take the other spin's place."""
    text = f'name = "x"\n[system]\n{LITHIUM}\n[ansatz]\nspin_symmetric = true\n'
    with pytest.raises(SpecError) as caught:
        parse_spec(text, "job.toml")
    message = (
        "job.toml:5:18: ansatz.spin_symmetric: both spins can be exchanged only where spin = 0"
    )
    assert message in str(caught.value)


def test_a_penalty_for_spin_needs_both_spins() -> None:
    """Electrons all of one spin have one S²: the key would be accepted and do nothing."""
    text = 'name = "x"\n[system]\natoms = [["He", 0, 0, 0]]\n[train]\nspin_penalty = 0.1\n'
    (point,) = parse_spec(text, "job.toml").points
    assert point.spec.train.spin_penalty == 0.1
    with pytest.raises(SpecError, match=r"train\.spin_penalty: electrons all of one spin"):
        parse_spec(text.replace("[train]", "spin = 2\n[train]"), "job.toml")
