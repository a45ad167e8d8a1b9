"""Geometries from xyz files, by the names of molecules, and with angles in expressions."""

import math
import sys
from pathlib import Path

import pytest

from vmcjob.errors import SpecError
from vmcjob.plan import make_plan
from vmcjob.spec import dump_spec, load_resolved, parse_spec, read_spec

PLAIN = "3\nwater\nO 0 0 0.1173\nH 0 0.7572 -0.4692\nH 0 -0.7572 -0.4692\n"
LIST = '[["O", 0, 0, 0.1173], ["H", 0, 0.7572, -0.4692], ["H", 0, -0.7572, -0.4692]]'
EQUAL = {
    "tabs, comments, numbers, case": (
        "\n# by hand\n 3 \r\n\r\n8\t0\t0\t1.173D-1 # oxygen\r\nh 0 0.7572 -0.4692\r\n\r\n"
        "H 0 -0.7572 -0.4692\r\n\r\n"
    ),
    "columns behind": PLAIN.replace("0.1173", "0.1173 -0.8 spectator"),
    "extended": (
        '3\nLattice="9 0 0 0 9 0 0 0 9" Properties=pos:R:3:Z:I:1:q:R:1 pbc="F F F"\n'
        "0 0 0.1173 8 -0.8\n0 0.7572 -0.4692 1 0.4\n0 -0.7572 -0.4692 1 0.4\n"
    ),
}


def write(folder: Path, xyz: str, system: str = 'xyz = "a.xyz"') -> Path:
    """A spec of a system, and an xyz file beside it."""
    (folder / "a.xyz").write_text(xyz)
    (folder / "a.toml").write_text(f'name = "a"\n[system]\n{system}\n')
    return folder / "a.toml"


def run_id(path: Path) -> str:
    (task,) = make_plan(read_spec(path)).tasks
    return task.run_id


@pytest.mark.parametrize("text", [PLAIN, *EQUAL.values()], ids=["plain", *EQUAL])
def test_an_xyz_file_is_the_same_calculation_as_its_list_of_atoms(text: str, tmp_path) -> None:
    """A wrong unit or column would change the run id; the directory of the spec is not ours."""
    listed = write(tmp_path, text, f'atoms = {LIST}\nunit = "angstrom"')
    expected = run_id(listed)
    assert run_id(write(tmp_path, text)) == expected


def test_a_run_depends_on_the_content_of_its_file_and_keeps_it(tmp_path) -> None:
    """An id from the path alone would pool two geometries; a queued run must not read the file."""
    path = write(tmp_path, PLAIN)
    before, resolved = run_id(path), dump_spec(read_spec(path).points[0].spec)
    (tmp_path / "a.xyz").write_text(PLAIN.replace("0.1173", "0.1174"))
    assert run_id(path) != before
    (tmp_path / "a.xyz").unlink()
    assert "xyz" not in resolved
    assert dump_spec(load_resolved(resolved, "spec.toml")) == resolved


def test_the_unit_of_an_xyz_file_can_be_bohr(tmp_path) -> None:
    spec = read_spec(write(tmp_path, PLAIN, 'xyz = "a.xyz"\nunit = "bohr"')).points[0].spec
    assert spec.system.atoms[0].position == (0.0, 0.0, 0.1173)


COMPLAINTS = {
    "": ':1:1: the file is empty; expected the number of atoms, a comment and "O 0.0 0.0 0.1173"',
    "H 0 0 0\n": ':1:1: expected the number of atoms, got "H 0 0 0"; an xyz file begins with',
    "2\nH 0 0 0\nH 0 0 1.4\n": ":2:1: 2 atoms announced, 1 found: the second line is a comment;",
    "2\n\nH 0 0 0\n": ":1:1: 2 atoms announced, 1 found; correct the number",
    "1\n\nH 0 0 0\n1\n\nH 0 0 1\n": ":4:1: there is more after the 1 atoms",
    "1\n\nH1 0 0 0\n": ':3:1: expected the symbol of an element, got "H1"; did you mean H?',
    "1\n\nD 0 0 0\n": ":3:1: deuterium is an isotope of hydrogen",
    "1\n\n200 0 0 0\n": ":3:1: expected an atomic number from 1 to 118",
    "1\n\nH 0 0,5 0\n": ':3:5: expected a number, got "0,5"; write 0.5',
    "1\n\nH 0 nan 0\n": ':3:5: expected a number, got "nan"',
    "1\n\nH 0 0\n": ':3:1: expected 4 columns, as in "O 0.0 0.0 0.1173", got 3',
    '1\nLattice="1 0 0"\nH 0 0 0\n': ":2:1: a lattice: molecules only are computed here",
    "1\nProperties=pos:R:3\nH 0 0 0\n": ":2:1: expected the columns species (or Z) and pos",
    "1\nProperties=pos:R\nH 0 0 0\n": ":2:1: expected Properties=name:type:columns",
    "1\nProperties=species:S:1:pos:R:3:q:R:1\nH 0 0 0\n": ":3:1: expected the 5 columns that",
}


@pytest.mark.parametrize(("xyz", "words"), COMPLAINTS.items())
def test_a_mistake_in_an_xyz_file_is_shown_in_that_file(xyz: str, words: str, tmp_path) -> None:
    """With its line and column, together with the mistakes of the spec."""
    path = write(tmp_path, xyz, 'xyz = "a.xyz"\n[train]\nsteps = -1')
    with pytest.raises(SpecError) as raised:
        read_spec(path)
    first, second = raised.value.problems
    assert first.startswith(f"{tmp_path}/a.xyz{words}")
    assert second.startswith(f"{path}:5:9: train.steps: ")


def test_a_mistake_about_the_atoms_of_a_file_points_at_its_key(tmp_path) -> None:
    """The atoms stand nowhere in the spec."""
    with pytest.raises(SpecError, match=r"a\.toml:3:7: system\.atoms\[1\]: this H is 0 bohr"):
        read_spec(write(tmp_path, "2\n\nH 0 0 0\nH 0 0 0\n"))


def test_an_absent_file_and_two_geometries_at_once_are_refused(tmp_path) -> None:
    with pytest.raises(SpecError, match=r'a\.toml:3:7: system\.xyz: "b\.xyz": there is no file'):
        read_spec(write(tmp_path, PLAIN, 'xyz = "b.xyz"'))
    both = f'atoms = {LIST}\nxyz = "a.xyz"'
    with pytest.raises(SpecError, match="give one of atoms, xyz or molecule, not atoms and xyz"):
        read_spec(write(tmp_path, PLAIN, both))


def test_files_can_be_swept(tmp_path) -> None:
    """One run for each file; the mistake in one is told once."""
    path = write(tmp_path, PLAIN, 'spin = 0\n[sweep]\n"system.xyz" = ["a.xyz", "b.xyz"]')
    (tmp_path / "b.xyz").write_text(PLAIN.replace("0.1173", "0.2"))
    first, second = read_spec(path).points
    assert first.coordinates == {"system.xyz": "a.xyz"}
    assert first.spec.system != second.spec.system
    (tmp_path / "b.xyz").write_text("1\n\nX 0 0 0\n")
    with pytest.raises(SpecError) as raised:
        read_spec(path)
    assert len(raised.value.problems) == 1


def test_a_molecule_by_name_has_its_geometry_and_spin() -> None:
    """O2 as a singlet would be a wrong calculation that nobody asked for."""
    pytest.importorskip("ase", reason="geometries by name come from ase")
    spec = parse_spec('name = "o2"\nsystem.molecule = "O2"\n', "o2.toml").points[0].spec
    first, second = (atom.position for atom in spec.system.atoms)
    assert spec.system.spin == 2
    assert math.dist(first, second) == pytest.approx(1.246 / 0.529177, rel=1e-3)  # MP2/6-31G(d)
    ion = 'name = "o2"\n[system]\nmolecule = "O2"\ncharge = 1\n'
    assert parse_spec(ion, "o2.toml").points[0].spec.system.spin == 1
    with pytest.raises(SpecError, match=r'"O4": no molecule of ase\'s table g2'):
        parse_spec('name = "o"\nsystem.molecule = "O4"\n', "o.toml")


def test_without_ase_a_molecule_by_name_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ase.collections", None)
    with pytest.raises(SpecError, match="by name need ase; pip install 'vmcjob"):
        parse_spec('name = "o"\nsystem.molecule = "O2"\n', "o.toml")


def test_an_angle_can_be_swept() -> None:
    """Degrees taken for radians, or a 1e-16 where there is a 0, would show."""
    text = """name = "h2o"
    [system]
    atoms = [["O", 0, 0, 0], ["H", 0, 0, 2], ["H", 0, "{R*sin(radians(t))}", "{R*cos(radians(t))}"]]
    [sweep]
    R = [2.0]
    t = [90, 60]
    """
    right, sixty = (point.spec.system.atoms[2].position for point in parse_spec(text, "a").points)
    assert right == (0.0, 2.0, 0.0)
    assert sixty == (0.0, pytest.approx(math.sqrt(3), abs=1e-14), 1.0)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("{cosine(R)}", "unknown function 'cosine'; known are sin, cos,"),
        ("{sqrt(0 - R)}", "takes a function where that has no value"),
        ("{cos(R, R)}", "is not made of numbers"),
        ("{cos}", "unknown variable 'cos'"),
        ("{__import__(R)}", "unknown function '__import__'"),
    ],
)
def test_a_wrong_function_is_refused(expression: str, words: str) -> None:
    text = f'name = "h"\nsystem.atoms = [["H", 0, 0, "{expression}"]]\n[sweep]\nR = [1.0]\n'
    with pytest.raises(SpecError) as raised:
        parse_spec(text, "h.toml")
    assert words in str(raised.value)
