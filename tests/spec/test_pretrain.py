"""How a run begins by default: to which Hartree–Fock solution, and after how much pretraining."""

import pytest

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
