"""Sentences about specs that were once misleading, each as it is now."""

import re

import pytest

from vmcjob.document import expected, keys_of, variants_of
from vmcjob.errors import SpecError
from vmcjob.spec import FermiNet, JobSpec, Psiformer, parse_spec, why_no_start

MOLECULE = 'name = "h"\nsystem.atoms = [["H", 0, 0, 0]]\n'


def complaint_of(text: str) -> str:
    with pytest.raises(SpecError) as refusal:
        parse_spec(text, "x.toml")
    return str(refusal.value).splitlines()[0]


def test_a_range_is_said_once() -> None:
    assert complaint_of(MOLECULE + "optimizer.momentum = 1\n") == (
        "x.toml:3:22: optimizer.momentum: expected a number from 0 to below 1, got 1"
    )
    for name, table in keys_of(JobSpec).items():
        for part in variants_of(table.kind.type).values() or [table.kind.type]:
            for key, about in keys_of(part).items() if table.is_table else ():
                words = expected(about.kind)
                n_ranges = len(re.findall("of at least|between|above|from", words))
                assert n_ranges <= 1, f"{name}.{key}: {words}"


@pytest.mark.parametrize(("symbol", "isotope"), [("D", "deuterium"), ("T", "tritium")])
def test_an_isotope_is_called_one(symbol: str, isotope: str) -> None:
    """And not taken for a misspelt palladium or tantalum."""
    assert complaint_of(f'name = "d"\nsystem.atoms = [["{symbol}", 0, 0, 0]]\n') == (
        f"x.toml:2:18: system.atoms[0][0]: {isotope} is an isotope of hydrogen, and no mass counts "
        'here; write "H"'
    )


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        (FermiNet(layers=3), FermiNet(), "ansatz.layers = 2; expected 3"),
        (
            FermiNet(layers=3, jastrow=False),
            FermiNet(),
            "ansatz.layers = 2 and ansatz.jastrow = true; expected 3 and false",
        ),
        (Psiformer(), FermiNet(), 'ansatz.kind = "ferminet"; expected "psiformer"'),
    ],
)
def test_a_start_of_another_ansatz_is_told_the_keys(ours, theirs, words) -> None:
    (point,) = parse_spec(MOLECULE, "x.toml").points
    spec, origin = (
        JobSpec(name="h", system=point.spec.system, ansatz=ansatz) for ansatz in (ours, theirs)
    )
    assert why_no_start(spec, origin) == f"has {words}: start from another run, or without one"
