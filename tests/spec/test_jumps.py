"""Which electrons jump from nucleus to nucleus by default: one alone whose nuclei are far apart."""

import pytest

from vmcjob.errors import SpecError
from vmcjob.plan import make_plan
from vmcjob.spec import parse_spec


def spec_text(*places: float, electrons: int = 1, jumps: str = "") -> str:
    """Hydrogen nuclei in a line."""
    atoms, charge = [["H", 0, 0, z] for z in places], len(places) - electrons
    system = f"[system]\natoms = {atoms}\ncharge = {charge}".replace("'", '"')
    return f'name = "x"\n{system}\n[sampler]\n{jumps}'


def jumps_in(text: str) -> bool | None:
    """What it means in full."""
    return parse_spec(text, "job.toml").points[0].spec.sampler.jumps


@pytest.mark.parametrize(
    ("places", "wanted"),
    [
        ((0.0,), False),
        ((0.0, 1.4), False),
        ((0.0, 6.0, 12.0), False),
        ((0.0, 12.0, 6.0, 18.1), True),
        ((0.0, 1.4, 8.0, 9.4), True),
    ],
)
def test_they_jump_where_some_atoms_are_far_from_all_others(
    places: tuple[float, ...], wanted: bool
) -> None:
    """More than 6 bohr from the nearest; a long chain is in one piece."""
    assert jumps_in(spec_text(*places)) is wanted


def test_of_several_electrons_none_jumps_unless_asked_to() -> None:
    """H2 at 20 bohr came to -0.9965(4) with jumps, which find ions, and to -0.99998(1) without."""
    assert jumps_in(spec_text(0.0, 20.0, electrons=2)) is False
    assert jumps_in(spec_text(0.0, 20.0, electrons=2, jumps="jumps = true")) is True


def test_a_run_without_jumps_is_the_run_that_it_was_before_there_were_any() -> None:
    """The key at its former value has no part in the id: runs of near atoms keep theirs."""

    def run_id(text: str) -> str:
        (task,) = make_plan(parse_spec(text, "job.toml")).tasks
        return task.run_id

    near, far = spec_text(0.0, 1.4), spec_text(0.0, 20.0)
    assert run_id(near) == run_id(spec_text(0.0, 1.4, jumps="jumps = false"))
    assert run_id(near) != run_id(spec_text(0.0, 1.4, jumps="jumps = true"))
    assert run_id(far) == run_id(spec_text(0.0, 20.0, jumps="jumps = true"))


def test_an_atom_has_nowhere_to_jump_to() -> None:
    """Asked for, it would be accepted and do nothing."""
    with pytest.raises(SpecError, match=r"sampler\.jumps: an atom has no other nucleus"):
        jumps_in(spec_text(0.0, jumps="jumps = true"))
