"""Energies in other units than hartree (CODATA 2018)."""

from collections.abc import Mapping
from typing import Final, Literal

EnergyUnit = Literal["hartree", "eV", "kcal/mol", "kJ/mol", "cm-1"]

PER_HARTREE: Final[Mapping[EnergyUnit, float]] = {
    "hartree": 1.0,
    "eV": 27.211386245988,
    "kcal/mol": 627.509474063,
    "kJ/mol": 2625.499639479,
    "cm-1": 219474.6313632,
}
