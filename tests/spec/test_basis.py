"""Which basis sets cover which elements: our table against pyscf's own files."""

import warnings

import pytest
from pyscf import gto

from vmcjob.errors import SpecError
from vmcjob.spec import parse_spec
from vmcjob.spec.basis import COVERED, covers
from vmcjob.spec.elements import SYMBOLS

FIRST_WITH_POTENTIAL = 37


def has_all_electrons(basis: str, symbol: str) -> bool:
    """Whether pyscf has functions for the element, none of its electrons left to a potential."""
    if basis.startswith("def2") and SYMBOLS.index(symbol) + 1 >= FIRST_WITH_POTENTIAL:
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return bool(gto.basis.load(basis, symbol))
    except (KeyError, RuntimeError, ValueError):  # a missing basis is either, by how it is stored
        return False


@pytest.mark.parametrize("basis", COVERED)
def test_what_a_basis_covers_is_what_pyscf_has(basis: str) -> None:
    """A basis that is missing has to be told when a job is submitted, where there is no pyscf."""
    ours = [covers(basis, charge) for charge in range(1, len(SYMBOLS) + 1)]
    assert ours == [has_all_electrons(basis, symbol) for symbol in SYMBOLS]


def parse(atoms: str, more: str = "") -> str:
    """The basis of a spec's start."""
    text = f'name = "x"\n[system]\natoms = [{atoms}]\n{more}'
    return parse_spec(text, "job.toml").points[0].spec.pretrain.basis


@pytest.mark.parametrize(
    ("atoms", "more", "basis"),
    [
        ('["He", 0, 0, 0]', "", "cc-pvdz"),
        ('["He", 0, 0, 0]', "spin = 2", "aug-cc-pvdz"),
        ('["H", 0, 0, 0]', "charge = -1", "aug-cc-pvdz"),
        ('["K", 0, 0, 0]', "", "6-31g*"),
        ('["He", 0, 0, 0]', '[pretrain]\nbasis = "sto-3g"', "sto-3g"),
    ],
)
def test_electrons_far_out_have_diffuse_functions(atoms: str, more: str, basis: str) -> None:
    """The triplet of helium starts at -1.40 hartree without, at -2.15 with them; exact: -2.175."""
    assert parse(atoms, more) == basis


def test_a_missing_basis_is_told_before_anything_runs() -> None:
    """With the elements that it lacks."""
    with pytest.raises(SpecError) as raised:
        parse('["K", 0, 0, 0], ["H", 0, 0, 4]', '[pretrain]\nbasis = "cc-pvdz"')
    assert str(raised.value).startswith(
        "job.toml:5:9: pretrain.basis: cc-pvdz has no functions for K; use sto-3g, "
    )


def test_an_element_that_nobody_chose_a_basis_for_starts_in_one_that_covers_it() -> None:
    """Xenon and caesium are beyond cc-pVDZ; 3-21G has them."""
    assert parse('["Xe", 0, 0, 0]') == parse('["Cs", 0, 0, 0]') == "3-21g"
    assert parse('["I", 0, 0, 0], ["H", 0, 0, 3]') == "sto-3g"  # as before 3-21g was an answer
    with pytest.raises(SpecError, match=r"Ba; nor has any other basis; pretrain\.steps = 0 does"):
        parse('["Ba", 0, 0, 0]')
    assert parse('["Ba", 0, 0, 0]', "[pretrain]\nsteps = 0") == "cc-pvdz"
