"""The periodic table: symbols in the order of their nuclear charge."""

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
"""Of hydrogen: as symbols of their own in chemistry, but not here, where nuclei do not move."""
