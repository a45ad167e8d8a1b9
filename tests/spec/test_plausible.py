"""What is said of a system that was read, and which systems are doubted."""

import pytest

from vmcjob.errors import SpecError
from vmcjob.spec import System, composition, describe_systems, doubts_about, parse_spec
from vmcjob.spec.elements import COVALENT_RADII_ANGSTROM, SYMBOLS, UNPAIRED

H2 = '["H", 0, 0, 0], ["H", 0, 0, 1.4]'
O2 = '["O", 0, 0, 0], ["O", 0, 0, 2.28]'


def read(atoms: str, more: str = "") -> System:
    """The system of a spec."""
    text = f'name = "x"\n[system]\natoms = [{atoms}]\n{more}'
    return parse_spec(text, "job.toml").points[0].spec.system


def test_a_system_is_described_with_both_units_and_both_counts_of_spin() -> None:
    """Multiplicity is 2S + 1 and not 2S; 1 bohr is 0.529 angstrom and not 1.89."""
    water = '["O", 0, 0, 0], ["H", 0, 0, 0.9572], ["H", 0.9266, 0, -0.24]'
    assert describe_systems([read(water, 'unit = "angstrom"')]) == [
        "H2O, charge 0, multiplicity 1 (singlet), electrons: 5 up, 5 down, "
        "shortest distance 1.809 bohr = 0.9572 angstrom"
    ]
    assert describe_systems([read('["N", 0, 0, 0]', "spin = 3\n")]) == [
        "N, charge 0, multiplicity 4 (quartet), electrons: 5 up, 2 down"
    ]


def test_a_sweep_is_one_line_with_both_ends_and_another_charge_is_another_line() -> None:
    """A line for each of a thousand distances tells nothing."""
    near, far = read(H2), read(H2.replace("1.4", "3.0"))
    ion = read(H2, "charge = 1")
    assert describe_systems([far, near, ion]) == [
        "H2, charge 0, multiplicity 1 (singlet), electrons: 1 up, 1 down, "
        "shortest distance 1.4 to 3 bohr = 0.7408 to 1.588 angstrom",
        "H2, charge +1, multiplicity 2 (doublet), electrons: 1 up, 0 down, "
        "shortest distance 1.4 bohr = 0.7408 angstrom",
    ]


@pytest.mark.parametrize(
    ("atoms", "more", "words"),
    [
        ('["N", 0, 0, 0]', "", "ground state is a quartet: spin = 3"),
        ('["N", 0, 0, 0]', "charge = 1", "ground state is a triplet: spin = 2"),
        (O2, "", "O2 is a singlet here, and its ground state is a triplet: spin = 2"),
        (H2.replace("1.4", "0.74"), "", 'bohr unless unit = "angstrom"'),
        (H2.replace("1.4", "0.1"), 'unit = "angstrom"', "H-H at 0.189 bohr (0.1 angstrom)"),
        (H2, "charge = -3", "hardly binds all of its electrons"),
        ('["Ne", 0, 0, 0]', "charge = -1", "hardly binds all of its electrons"),
    ],
)
def test_a_system_that_is_hardly_meant_is_doubted(atoms: str, more: str, words: str) -> None:
    """Each of these is computed without a word, and its energy is of something else."""
    (doubt,) = doubts_about([read(atoms, more)])
    assert words in doubt


@pytest.mark.parametrize(
    ("atoms", "more"),
    [
        ('["N", 0, 0, 0]', "spin = 3"),
        ('["He", 0, 0, 0]', "spin = 2"),  # excited, and asked for
        ('["H", 0, 0, 0]', "charge = -1"),
        (O2, "spin = 2"),
        (O2, "charge = 1"),
        (H2, ""),
        ('["N", 0, 0, 0], ["N", 0, 0, 2.068]', ""),
        ('["H", 0, 0, 0], ["H", 0, 0, 20.0]', ""),
    ],
)
def test_a_sound_system_is_not_doubted(atoms: str, more: str) -> None:
    """A warning that is often wrong is not read."""
    assert doubts_about([read(atoms, more)]) == []


def test_the_shortest_bond_of_a_sweep_alone_is_doubted() -> None:
    """One line, not one of each distance."""
    (doubt,) = doubts_about(read(H2.replace("1.4", d)) for d in ("0.5", "0.3", "0.4", "1.4"))
    assert "at 0.3 bohr" in doubt


def test_the_table_of_ground_states_has_the_parity_of_its_electrons() -> None:
    """One digit too many or too few shifts all spins behind it."""
    assert len(UNPAIRED) == SYMBOLS.index("Rn") + 1
    assert all((unpaired - charge) % 2 == 0 for charge, unpaired in enumerate(UNPAIRED, start=1))
    by_symbol: dict[str, int] = dict(zip(SYMBOLS, UNPAIRED, strict=False))
    known = {"O": 2, "P": 3, "Cr": 6, "Fe": 4, "Ni": 2, "Pd": 0, "Eu": 7, "Gd": 8, "Pt": 2, "Rn": 0}
    assert {symbol: by_symbol[symbol] for symbol in known} == known
    assert COVALENT_RADII_ANGSTROM["I"] == 1.39
    assert list(COVALENT_RADII_ANGSTROM)[-1] == "Cm"


def test_a_composition_counts_nuclei_and_electrons() -> None:
    """Without electrons, an ion equals its atom."""
    assert composition(read(H2, "charge = 1")) == {"H": 2, "electrons": 1}


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("multiplicity = 3", "write the number of unpaired electrons, 2S: spin = 2"),
        ('multiplicity = "triplet"', "2S: spin = 2 for a triplet"),
        (
            "colour = 3",
            "known here: atoms, unit, charge, spin, reference, xyz, molecule, ecp and ecp_points",
        ),
    ],
)
def test_a_multiplicity_is_told_the_spin(key: str, words: str) -> None:
    """Programs of chemistry ask for 2S + 1."""
    with pytest.raises(SpecError, match="unknown key") as caught:
        read(O2, key)
    assert words in str(caught.value)


@pytest.mark.parametrize("symbol", ["X", "@He", "Gh(He)", "ghost-He", "Bq1", "X-He"])
def test_a_ghost_atom_has_a_sentence_of_its_own(symbol: str) -> None:
    """Else it is taken for a slip of the pen: did you mean 'Xe'?"""
    with pytest.raises(SpecError, match="is a ghost atom, basis functions without a nucleus"):
        read(f'["{symbol}", 0, 0, 0]')


def test_xenon_is_no_ghost() -> None:
    """It begins like one."""
    assert read('["Xe", 0, 0, 0]').n_electrons == 54
