"""The atoms of `[system]` from a file or by the name of a molecule, as if the spec listed them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from vmcjob.document import (
    FAILED,
    Complaint,
    KeyPath,
    Reader,
    enumerate_words,
    format_value,
    keys_of,
    read_text,
)
from vmcjob.errors import NotFoundError, SpecError
from vmcjob.spec.molecules import Molecule, MoleculeError, molecule_of
from vmcjob.spec.system import System
from vmcjob.spec.xyz import parse_xyz

Tables: TypeAlias = dict[str, Any]  # a parsed document; not validated yet

ATOMS: Final = ("system", "atoms")
_FORMS: Final = ("atoms", "xyz", "molecule")
_STAND_IN: Final = {"atoms": [["Ne", 0.0, 0.0, 0.0], ["Ne", 0.0, 0.0, 5.0]]}
"""Used after a complaint about a geometry, so that the other tables are checked too."""


class Geometries:
    """Geometries that specs name; each file is read once for all points of a sweep.

    Args:
        folder: where relative paths of xyz files begin: the folder of the spec.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.known: dict[tuple[str, str], Molecule | Exception] = {}
        """Each geometry, or the reason why there are none."""

    def fill_in(self, tables: Tables, reader: Reader) -> tuple[Tables, KeyPath | None]:
        """The tables with `atoms` instead of `xyz` or `molecule`, and the path of that key.

        Complaints go to the reader. Without such a key, the tables as they are, and None.
        """
        system = tables.get("system")
        given = [name for name in _FORMS if isinstance(system, dict) and name in system]
        if not isinstance(system, dict) or given in ([], ["atoms"]):
            return tables, None
        form = given[-1]
        if len(given) > 1:
            words = (
                f"give one of {enumerate_words(_FORMS, 'or')}, not {enumerate_words(given, 'and')}"
            )
            reader.complain(("system", form), words, at_key=True)
            return tables | {"system": _STAND_IN}, ("system", form)
        molecule = self._molecule(form, system[form], reader)
        if form == "molecule" and "unit" in system:
            reader.complain(("system", "unit"), "a molecule by name has its own; leave it out")
        filled = _STAND_IN if molecule is None else _fill(molecule, system, form)
        return tables | {"system": filled}, ("system", form)

    def _molecule(self, form: str, name: Any, reader: Reader) -> Molecule | None:
        """The geometry; None after a complaint."""
        origin = ("system", form)
        if reader.scalar(keys_of(System)[form].kind, name, origin) is FAILED:
            return None
        if (form, name) not in self.known:
            self.known[form, name] = self._load(form, name)
        found = self.known[form, name]
        if isinstance(found, Molecule):
            return found
        if isinstance(found, SpecError):
            offset = reader.place(origin).value
            reader.complaints += [
                Complaint(offset, words, is_rendered=True) for words in found.problems
            ]
        else:
            reader.complain(origin, f"{format_value(name)}: {found}")
        return None

    def _load(self, form: str, name: str) -> Molecule | Exception:
        """The geometry, or the reason why there is none."""
        path = self.folder / Path(name).expanduser()
        try:
            if form == "molecule":
                return molecule_of(name)
            return Molecule(parse_xyz(read_text(path), str(path)))
        except (SpecError, MoleculeError) as error:
            return error
        except NotFoundError:
            return MoleculeError(f"there is no file {path}; paths begin at the folder of the spec")


def _fill(molecule: Molecule, system: Mapping[str, Any], form: str) -> dict[str, Any]:
    """The table `[system]` with the atoms; a neutral molecule by name brings its spin too."""
    rest = {key: value for key, value in system.items() if key != form}
    spin = {} if molecule.spin is None or rest.get("charge", 0) != 0 else {"spin": molecule.spin}
    return {"atoms": molecule.atoms, "unit": "angstrom"} | spin | rest
