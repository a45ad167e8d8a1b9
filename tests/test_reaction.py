"""Reaction energies: how they are written, and their errors."""

import math

import pytest

from vmcjob.results.reaction import Measured, ReactionError, imbalance, parse

KNOWN = {
    "h": Measured(-0.5, 3e-5),
    "h2": Measured(-1.174, 4e-5),
    "he-ion": Measured(-2.0, 1e-5),
    "h2 R=1.4": Measured(-1.17, 1e-5),
}


def test_energies_add_up_and_errors_add_in_squares() -> None:
    """Twice one energy has twice its error: both halves are the same number."""
    energy, error = parse("2*h - h2").energy(KNOWN)
    assert energy == pytest.approx(0.174)
    assert error == pytest.approx(math.hypot(6e-5, 4e-5))


def test_what_cancels_has_no_error() -> None:
    """An energy minus itself is zero, whatever its error."""
    assert parse("h2 - h2").energy(KNOWN) == Measured(0.0, 0.0)


@pytest.mark.parametrize(
    ("text", "factors"),
    [
        ("he-ion", {"he-ion": 1.0}),
        ("he-ion - h", {"he-ion": 1.0, "h": -1.0}),
        ("0.5*h2 R=1.4 + 2 * h", {"h2 R=1.4": 0.5, "h": 2.0}),
        (" h + h ", {"h": 2.0}),
    ],
)
def test_names_may_have_hyphens_and_coordinates(text: str, factors: dict[str, float]) -> None:
    """Only a sign between spaces is one."""
    assert parse(text).factors == factors


@pytest.mark.parametrize("text", ["", "  ", "2*", "h -", "h - - h2", "*h", "- h"])
def test_what_is_no_sum_is_refused(text: str) -> None:
    """With an example of one."""
    with pytest.raises(ReactionError, match=r"2\*h - h2"):
        parse(text)


def test_a_name_without_an_energy_is_told() -> None:
    """And which there are."""
    with pytest.raises(
        ReactionError, match=r"no energy of li; there are: h, h2, h2 R=1\.4, he-ion"
    ):
        parse("li - h").energy(KNOWN)


@pytest.mark.parametrize("text", ["2*h-h2", "h+h2"])
def test_a_sum_without_spaces_is_told_to_have_some(text: str) -> None:
    """Names may contain hyphens, so it cannot be taken apart."""
    with pytest.raises(ReactionError, match=r"spaces around \+ and -"):
        parse(text).energy(KNOWN)


COMPOSITIONS = {
    "h": {"H": 1, "electrons": 1},
    "h2": {"H": 2, "electrons": 2},
    "het": {"He": 1, "electrons": 2},
    "he-ion": {"He": 1, "electrons": 1},
    "heh-ion": {"H": 1, "He": 1, "electrons": 2},
}


@pytest.mark.parametrize(
    ("text", "uneven"),
    [
        ("2*h - h2", ""),
        ("h - 0.5*h2", ""),
        ("h + he-ion - heh-ion", ""),
        ("h2 - 2*het", "2 H against 0, 2 electrons against 4, 0 He against 2"),
        ("he-ion - het", "1 electrons against 2"),
        ("h2", "2 H against 0, 2 electrons against 0"),
    ],
)
def test_a_sum_balances_where_nuclei_and_electrons_do(text: str, uneven: str) -> None:
    """Counting electrons alone lets H2 turn into helium; nuclei alone, an ion into an atom."""
    assert imbalance(parse(text), COMPOSITIONS) == uneven
