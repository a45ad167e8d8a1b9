"""The periodic table: symbols in the order of nuclear charge."""

_TABLE = """
H He
Li Be B C N O F Ne
Na Mg Al Si P S Cl Ar
K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br Kr
Rb Sr Y Zr Nb Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe
Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb Lu Hf Ta W Re Os Ir Pt Au Hg Tl Pb Bi Po At Rn
Fr Ra Ac Th Pa U Np Pu Am Cm Bk Cf Es Fm Md No Lr Rf Db Sg Bh Hs Mt Ds Rg Cn Nh Fl Mc Lv Ts Og
"""

SYMBOLS = tuple(_TABLE.split())
NUCLEAR_CHARGES = {symbol: charge for charge, symbol in enumerate(SYMBOLS, start=1)}
ISOTOPES = {"D": "deuterium", "T": "tritium"}
"""Isotopes of hydrogen with their own symbols; not accepted here, because nuclei do not move."""

_RADII = """
0.31 0.28 1.28 0.96 0.84 0.73 0.71 0.66 0.57 0.58 1.66 1.41 1.21 1.11 1.07 1.05 1.02 1.06 2.03
1.76 1.70 1.60 1.53 1.39 1.50 1.42 1.38 1.24 1.32 1.22 1.22 1.20 1.19 1.20 1.20 1.16 2.20 1.95
1.90 1.75 1.64 1.54 1.47 1.46 1.42 1.39 1.45 1.44 1.42 1.39 1.39 1.38 1.39 1.40 2.44 2.15 2.07
2.04 2.03 2.01 1.99 1.98 1.98 1.96 1.94 1.92 1.92 1.89 1.90 1.87 1.87 1.75 1.70 1.62 1.51 1.44
1.41 1.36 1.36 1.32 1.45 1.46 1.48 1.40 1.50 1.50 2.60 2.21 2.15 2.06 2.00 1.96 1.90 1.87 1.80
1.69
"""
COVALENT_RADII_ANGSTROM: dict[str, float] = dict(
    zip(SYMBOLS, map(float, _RADII.split()), strict=False)
)
"""Of hydrogen to curium (Cordero et al., Dalton Trans. 2008, 2832)."""
_UNPAIRED = """
10 10123210 10123210 101236543210123210 101256543010123210
10103456785432101234543210123210
"""
UNPAIRED = tuple(map(int, "".join(_UNPAIRED.split())))
"""Unpaired electrons in the ground state of the neutral atom, of hydrogen to radon (NIST ASD)."""
