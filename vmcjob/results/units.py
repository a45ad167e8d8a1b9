"""Energies as people read them: units (CODATA 2018), and digits by the error."""

import math
from collections.abc import Mapping
from typing import Final, Literal

MAX_DECIMALS: Final = 12

EnergyUnit = Literal["hartree", "eV", "kcal/mol", "kJ/mol", "cm-1"]

PER_HARTREE: Final[Mapping[EnergyUnit, float]] = {
    "hartree": 1.0,
    "eV": 27.211386245988,
    "kcal/mol": 627.509474063,
    "kJ/mol": 2625.499639479,
    "cm-1": 219474.6313632,
}


def format_energy(energy: float | None, error: float | None) -> str:
    """An energy with its error in units of the last digit: -1.174476(12).

    The error has two digits when it begins with 1 or 2, where one digit would round it by up to
    a third; otherwise one. Without an error, four decimals.
    """
    if energy is None or not math.isfinite(energy):
        return ""
    if error is None or not math.isfinite(error) or error < 0:
        return f"{energy:.4f}"
    if error == 0:
        return f"{energy:.6f}(0)"
    mantissa, exponent = f"{error:.1e}".split("e")
    wanted = (1 if float(mantissa) < 3 else 0) - int(exponent)
    decimals = min(max(wanted, 0), MAX_DECIMALS)
    units = max(1, round(error * 10**decimals))
    return f"{energy:.{decimals}f}({units})"
