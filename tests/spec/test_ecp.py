"""`system.ecp`: names of sets, tables, files, and the mistakes in them."""

from pathlib import Path

import pytest

from vmcjob.errors import SpecError
from vmcjob.spec import FermiNet, JobSpec, dump_spec, load_resolved, parse_spec, read_spec, science
from vmcjob.spec.basis import by_element
from vmcjob.spec.ecp import load_potential
from vmcjob.spec.plausible import doubts_about
from vmcjob.spec.potential import Misread, read_potential

CARBON = "C nelec 2\nC ul\n1 14.43502 4.0\n2 7.38188 -25.81955\n3 8.39889 57.74008\n"


def spec_of(atoms: str, more: str) -> JobSpec:
    text = f'name = "x"\n[system]\natoms = [{atoms}]\n{more}'
    return parse_spec(text, "job.toml").points[0].spec


def test_a_set_is_resolved_to_its_numbers() -> None:
    """A run depends on the potential, not on where it was found; H stays bare."""
    spec = spec_of('["C", 0, 0, 0], ["H", 0, 0, 2]', 'ecp = "ccecp"')
    assert (spec.system.charges, spec.system.n_electrons, spec.system.ecp_points) == ((4, 1), 5, 6)
    assert spec.pretrain.basis == "ccecp-ccpvdz"
    assert load_resolved(dump_spec(spec), "spec.toml") == spec
    named = spec_of('["C", 0, 0, 0], ["H", 0, 0, 2]', 'ecp = { C = "ccecp", H = "none" }')
    assert science(named) == science(spec)
    other = spec_of('["C", 0, 0, 0], ["H", 0, 0, 2]', 'ecp = "ccecp"\necp_points = 12')
    assert science(other) != science(spec)


def test_only_new_runs_with_cores_begin_with_holes() -> None:
    """A run directory of before has no such key, and its network no such parameters."""
    new, bare = spec_of('["Na", 0, 0, 0]', 'ecp = "ccecp"'), spec_of('["Na", 0, 0, 0]', "")
    assert isinstance(new.ansatz, FermiNet)
    assert isinstance(bare.ansatz, FermiNet)
    assert (new.ansatz.core_holes, bare.ansatz.core_holes) == (True, False)
    assert "core_holes" not in str(science(bare))
    of_before = dump_spec(new).replace("core_holes = true\n", "")
    assert of_before != dump_spec(new)
    without = spec_of('["Na", 0, 0, 0]', 'ecp = "ccecp"\n[ansatz]\ncore_holes = false')
    assert load_resolved(of_before, "spec.toml") == without
    with pytest.raises(SpecError, match=r"core_holes: no nucleus has a core potential"):
        spec_of('["Na", 0, 0, 0]', "[ansatz]\ncore_holes = true")


def test_no_potential_is_the_spec_of_before() -> None:
    """Its runs keep their names."""
    bare = spec_of('["C", 0, 0, 0]', "")
    assert science(spec_of('["C", 0, 0, 0]', 'ecp = "none"')) == science(bare)
    assert science(spec_of('["H", 0, 0, 0]', 'ecp = "ccecp"')) == science(
        spec_of('["H", 0, 0, 0]', "")
    )


def test_the_ground_state_counts_the_electrons_of_the_core() -> None:
    """Carbon has two unpaired electrons, though the four outside its core might be beryllium's."""
    (doubt,) = doubts_about([spec_of('["C", 0, 0, 0]', 'ecp = "ccecp"').system])
    assert doubt.endswith("spin = 2")


def test_a_file_of_ones_own_is_read(tmp_path: Path) -> None:
    """Beside the spec; comments, capitals and Fortran's exponents are no mistakes."""
    (tmp_path / "c.nwchem").write_text(
        "ECP\n# carbon\nc NELEC 2\nC UL\n1 1.443502D+01 4.0\n2 7.38188 -25.81955\n"
        "3 8.39889 57.74008\nC S\n2 7.76079 52.13345\nEND\n"
    )
    job = tmp_path / "job.toml"
    job.write_text('name = "x"\n[system]\natoms = [["C", 0, 0, 0]]\necp = { C = "./c.nwchem" }\n')
    (potential,) = read_spec(job).points[0].spec.system.cores
    assert potential == load_potential("ccecp", "C")


@pytest.mark.parametrize("name", ["ccecp", "lanl2dz"])
def test_text_is_read_back_exactly(name: str) -> None:
    """Germanium's channels up to d, and what LANL2DZ has between them."""
    potential = load_potential(name, "Ge")
    assert potential
    assert read_potential(potential.text("Ge"), "Ge") == potential


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("C nelec 2\nC ul\n2 7.7 x\n", "x", 'expected a number, got "x"'),
        ("C nelec 2\nC ul\n9 7.7 1.0\n", "9", "expected a power from 0 to 6"),
        ("C nelec 2\nC ul\n2 -7.7 1.0\n", "-7.7", "expected an exponent above 0"),
        ("C nelec 2\nC ul\n2 7.7\n", "7.7", "expected a power, an exponent and a coefficient"),
        ("C nelec 2\nC ul\n2 7.7 1 3\n", "3", "terms of spin and orbit are not known here"),
        ("C nelec two\n", "two", "expected a number of core electrons"),
        ("C nelec 2\nC q\n", "q", "expected nelec, ul, s, p, d, f, g or h after the element"),
        ("C nelec 2\n2 7.7 1.0\n", "2 7.7", 'expected a line like "C nelec 2" or "C ul" first'),
        ("C nelec 2\nC s\n2 1.0 1.0\n", "C", "C has no local part"),
        ("C ul\n2 1.0 1.0\n", "C", "C has channels and no line"),
    ],
)
def test_a_mistake_in_a_potential_has_a_place(text: str, place: str, words: str) -> None:
    """pyscf's reader evaluates what it reads, and knows no places."""
    with pytest.raises(Misread, match=words.replace("(", r"\(")) as raised:
        read_potential(text, "C")
    assert text[raised.value.offset :].startswith(place)


def test_a_mistake_in_a_file_is_shown_where_it_is(tmp_path: Path) -> None:
    """With the file's own line and a caret."""
    (tmp_path / "c.nw").write_text(CARBON + "C s\n2 seven 1.0\n")
    job = tmp_path / "job.toml"
    job.write_text('name = "x"\n[system]\natoms = [["C", 0, 0, 0]]\necp = { C = "./c.nw" }\n')
    with pytest.raises(SpecError) as raised:
        read_spec(job)
    address, line, caret = str(raised.value).splitlines()
    assert address.endswith('c.nw:7:3: expected a number, got "seven"')
    assert (line, caret) == ("    2 seven 1.0", "      ^")


@pytest.mark.parametrize(
    ("atoms", "more", "words"),
    [
        ('["Xe", 0, 0, 0]', 'ecp = "ccecp"', "ccecp has no potential for Xe; use another set"),
        ('["Xe", 0, 0, 0]', 'ecp = { Xe = "ccecp" }', "ccecp has no potential for Xe; use another"),
        ('["C", 0, 0, 0]', 'ecp = "ccpe"', '"ccpe" is no set of potentials; use "ccecp"'),
        ('["C", 0, 0, 0]', "ecp = 3", 'expected "ccecp", or a table'),
        ('["C", 0, 0, 0]', 'ecp = { Fe = "ccecp" }', "system.ecp.Fe: there is no atom of Fe"),
        ('["C", 0, 0, 0]', 'ecp = { Q = "ccecp" }', "system.ecp.Q: Q is no element"),
        ('["C", 0, 0, 0]', 'ecp = { C = "./no.nw" }', "no.nw: cannot be read: no such file"),
        ('["C", 0, 0, 0]', "ecp_points = 6", "no element has a potential"),
        ('["C", 0, 0, 0]', 'ecp = "ccecp"\necp_points = 7', "one of 4, 6, 12, 18, 26, 32 or 50"),
        (
            '["C", 0, 0, 0]',
            'ecp = { C = "C nelec 6\\nC ul\\n2 1.0 1.0\\n" }',
            "the core has 6 electrons, which are all that C has",
        ),
        (
            '["C", 0, 0, 0]',
            'ecp = "ccecp"\n[pretrain]\nbasis = "cc-pvdz"',
            "cc-pvdz is a basis for all electrons, and system.ecp takes some away; use ccecp-",
        ),
        (
            '["C", 0, 0, 0]',
            '[pretrain]\nbasis = "ccecp-ccpvdz"',
            "ccecp-ccpvdz is a basis for core potentials, and C has none; use sto-3g",
        ),
    ],
)
def test_a_mistake_has_a_sentence(atoms: str, more: str, words: str) -> None:
    """What came, and what to do."""
    with pytest.raises(SpecError) as raised:
        spec_of(atoms, more)
    assert words in str(raised.value)


def test_each_element_has_its_basis() -> None:
    """An element without a potential needs functions for its core; a system without any, a name."""
    mixed = spec_of('["C", 0, 0, 0], ["H", 0, 0, 2]', 'ecp = "ccecp"').system
    assert by_element("ccecp-ccpvdz", mixed.needs) == {6: "ccecp-ccpvdz", 1: "cc-pvdz"}
    bare = spec_of('["C", 0, 0, 0], ["H", 0, 0, 2]', "").system
    assert by_element("cc-pvdz", bare.needs) == "cc-pvdz"
