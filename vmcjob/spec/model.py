"""A job as data: what a spec may say, with the type, range, meaning and default of every key."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import InitVar, dataclass, replace
from itertools import product
from typing import Annotated, Any, Final, Literal

from vmcjob.document import (
    FAILED,
    Before,
    Clash,
    Failure,
    KeyPath,
    Kind,
    Reader,
    Rule,
    above,
    at_least,
    at_most_of_them,
    between,
    enumerate_words,
    from_to_below,
    inside,
    matching,
    one_of,
)
from vmcjob.resources import DIGEST, MEMORY, ONE_LINE, WALL_TIME, memory_mb, wall_time_s
from vmcjob.spec.ansatz import DEFAULT_ANSATZ, Ansatz
from vmcjob.spec.basis import AUTO, BASIS_SETS, choose, covers
from vmcjob.spec.elements import ISOTOPES, NUCLEAR_CHARGES, SYMBOLS
from vmcjob.spec.evaluate import DEFAULT_EVALUATE, MAX_STEPS, Evaluate
from vmcjob.spec.optimizer import DEFAULT_OPTIMIZER, Optimizer
from vmcjob.spec.size import DEVICE_BYTES, format_bytes, measure

BOHR_PER_ANGSTROM = 1 / 0.529177210544  # CODATA 2022
NEAREST_NUCLEI_BOHR = 1e-3
"""Nuclei closer than this are a slip of the pen: two protons would repel with 1000 hartree."""
MAX_ATOMS: Final = 1000
"""Of one molecule: ten times what anybody has computed in this way."""
FARTHEST_BOHR = 1e4
"""Beyond, neighbouring float32 numbers are more than a thousandth of a bohr apart."""
MAX_WALKERS: Final = 1_000_000
PRETRAIN_STEPS: Final = 1000
BY_START: Final = -1
"""Stands for PRETRAIN_STEPS, or for 0 where a run starts from another."""
LOWEST_SPIN: Final = -1
"""Stands for 0 or 1 unpaired electrons, whichever the number of electrons allows."""

Name = Annotated[
    str,
    matching(
        "[A-Za-z0-9][A-Za-z0-9._-]{0,63}",
        'a name like "h2-cc.1" (up to 64 letters, digits and . _ -, a letter or digit first)',
    ),
]
Seed = Annotated[int, between(0, 2**32 - 1)]


@dataclass(frozen=True)
class Atom:
    """A nucleus; its TOML form is the array ``["H", x, y, z]``."""

    symbol: str
    position: tuple[float, float, float]  # bohr

    @classmethod  # `Any`, because a user may have written anything
    def from_toml(cls, value: Any, path: KeyPath, reader: Reader) -> "Atom | Failure":
        """Read an atom in the unit of its document; `System` converts it."""
        if not isinstance(value, list) or len(value) != 4:
            return reader.refuse(path, f"an atom like {_EXAMPLE}", value)
        symbol = _read_symbol(value[0], (*path, 0), reader)
        x, y, z = (reader.value(COORDINATE, value[i], (*path, i)) for i in (1, 2, 3))
        return FAILED if FAILED in (symbol, x, y, z) else cls(symbol, (x, y, z))

    def to_toml(self) -> list[str | float]:
        return [self.symbol, *self.position]


def _read_symbol(value: Any, path: KeyPath, reader: Reader) -> Any:
    """The symbol of an element; an isotope's is told whose it is, not what looks like it."""
    isotope = ISOTOPES.get(value) if isinstance(value, str) else None
    if isotope is None:
        return reader.value(_ELEMENT, value, path)
    words = f'{isotope} is an isotope of hydrogen, and no mass counts here; write "H"'
    return reader.complain(path, words)


_AROUND = tuple(product((-1, 0, 1), repeat=3))
_EXAMPLE = '["H", 0.0, 0.0, 1.4]'
_ELEMENT = Kind(str, (one_of(SYMBOLS, "the symbol of an element"),))
COORDINATE = Kind(float, (Rule('{} or an expression like "{R/2}"', math.isfinite),))
"""A coordinate of an atom, in whose place a swept spec may give an expression."""


@dataclass(frozen=True)
class System:
    """Nuclei and electrons; positions are in bohr, whatever unit they were given in."""

    atoms: Annotated[
        tuple[Atom, ...],
        Rule(
            f"{{}} of atoms, each like {_EXAMPLE}",
            lambda atoms: any(isinstance(atom, list) for atom in atoms),
        ),
        at_most_of_them(MAX_ATOMS),
        f"the nuclei, like atoms = [{_EXAMPLE}]",
    ]
    unit: InitVar[Annotated[Literal["bohr", "angstrom"], "of the positions of the atoms"]] = "bohr"
    charge: Annotated[int, between(-1000, 1000), "of the whole molecule, in units of e"] = 0
    spin: Annotated[int, at_least(0), "number of unpaired electrons, 2S"] = LOWEST_SPIN
    reference: Annotated[float | None, "an energy to compare with, in hartree"] = None

    def __post_init__(self, unit: str) -> None:
        """Settle what depends on another key: positions in bohr, and the lowest spin."""
        if unit == "angstrom":
            object.__setattr__(self, "atoms", tuple(_in_bohr(atom) for atom in self.atoms))
        if self.spin == LOWEST_SPIN:
            object.__setattr__(self, "spin", self.n_electrons % 2)

    @property
    def charges(self) -> tuple[int, ...]:
        """Of the nuclei, in units of e."""
        return tuple(NUCLEAR_CHARGES[atom.symbol] for atom in self.atoms)

    @property
    def n_electrons(self) -> int:
        return sum(self.charges) - self.charge

    @property
    def n_up(self) -> int:
        return (self.n_electrons + self.spin) // 2

    @property
    def n_down(self) -> int:
        return self.n_electrons - self.n_up

    def clashes(self) -> Iterator[Clash]:
        """Nuclei out of reach or on top of each other, and electrons that cannot be."""
        for i, atom in enumerate(self.atoms):
            if not max(map(abs, atom.position)) <= FARTHEST_BOHR:
                message = f"this {atom.symbol} is more than {FARTHEST_BOHR:g} bohr from the origin"
                yield Clash(("atoms", "unit"), message, (i,))
        for i, j in _too_near(self.atoms):
            first, second = self.atoms[i], self.atoms[j]
            distance = math.dist(first.position, second.position)
            message = (
                f"this {second.symbol} is {distance:.3g} bohr from the {first.symbol} of "
                f"system.atoms[{i}]; nuclei are at least {NEAREST_NUCLEI_BOHR} bohr apart"
            )
            yield Clash(("atoms", "unit"), message, (j,))
        yield from self._electron_clashes()

    def _electron_clashes(self) -> Iterator[Clash]:
        n_electrons = self.n_electrons
        if n_electrons < 1:
            message = (
                f"a charge of {self.charge} leaves no electrons; "
                f"neutral, there would be {sum(self.charges)}"
            )
            yield Clash(("charge", "atoms"), message)
            return
        if self.spin > n_electrons:
            wanted = f"at most {n_electrons}"
        elif (n_electrons - self.spin) % 2:
            wanted = "an odd number" if n_electrons % 2 else "an even number"
        else:
            return
        electrons = "1 electron" if n_electrons == 1 else f"{n_electrons} electrons"
        message = f"{self.spin} unpaired among {electrons} is impossible; expected {wanted}"
        yield Clash(("spin", "charge", "atoms"), message)


def _too_near(atoms: Sequence[Atom]) -> Iterator[tuple[int, int]]:
    """Each atom that is too near to an earlier one, behind that one; in linear time.

    Only of those within reach. Space is cut into cubes: what is too near is in the same one or in
    one of its neighbours.
    """
    cubes: dict[tuple[int, int, int], list[int]] = {}
    for j, atom in enumerate(atoms):
        if not max(map(abs, atom.position)) <= FARTHEST_BOHR:
            continue
        x, y, z = (math.floor(coordinate / NEAREST_NUCLEI_BOHR) for coordinate in atom.position)
        near = [i for dx, dy, dz in _AROUND for i in cubes.get((x + dx, y + dy, z + dz), ())]
        distances = {i: math.dist(atoms[i].position, atom.position) for i in near}
        close = [i for i, distance in distances.items() if distance < NEAREST_NUCLEI_BOHR]
        if close:
            yield min(close), j
        else:
            cubes.setdefault((x, y, z), []).append(j)


def _in_bohr(atom: Atom) -> Atom:
    x, y, z = (BOHR_PER_ANGSTROM * coordinate for coordinate in atom.position)
    return replace(atom, position=(x, y, z))


@dataclass(frozen=True)
class Sampler:
    """How the electrons walk."""

    walkers: Annotated[int, between(2, MAX_WALKERS), "in all, shared by the devices"] = 512
    steps: Annotated[int, between(1, MAX_STEPS), "Metropolis moves between two updates"] = 10
    width: Annotated[float, above(0), "spread of the first moves, bohr"] = 0.3
    target_acceptance: Annotated[float, inside(0, 1), "to which training tunes the width"] = 0.525
    warmup: Annotated[int, between(0, MAX_STEPS), "sweeps of `steps` moves before training"] = 100


@dataclass(frozen=True)
class Pretrain:
    """Fitting the orbitals of the ansatz to those of Hartree-Fock, before VMC begins."""

    steps: Annotated[int, between(0, MAX_STEPS), "updates, none to start from scratch"] = BY_START
    basis: Annotated[
        str,
        one_of(BASIS_SETS, "the name of a basis set"),
        "auto: cc-pvdz, or aug-cc-pvdz for anions and two or more unpaired electrons",
    ] = AUTO
    method: Annotated[
        Literal["stable", "auto", "rhf", "uhf", "rohf"],
        "auto: rhf for closed shells, else uhf; stable: as auto, or what is stable and lower",
    ] = "stable"
    optimizer: Literal["adam", "lamb"] = "adam"
    learning_rate: Annotated[float, above(0), "of the first step, falling to 0 as a cosine"] = 5e-3


@dataclass(frozen=True)
class Train:
    """The series in which the parameters move."""

    steps: Annotated[int, between(0, MAX_STEPS), "updates of the parameters"] = 1000
    rollbacks: Annotated[
        int,
        between(0, 100),
        "times that an explosion, or numbers not finite, send a run back, with half the step",
    ] = 3
    min_ess: Annotated[
        float,
        from_to_below(0, 1),
        "part of the walkers that must still count after an update, or it is halved; 0: no matter",
        Before(0.0),
    ] = 0.5
    start_from: Annotated[
        str | None,
        matching("[A-Za-z0-9][A-Za-z0-9._-]{0,63}-[0-9a-f]{10}", 'a run id like "h2-1a2b3c4d5e"'),
        "a finished run whose parameters and walkers to begin with",
    ] = None


@dataclass(frozen=True)
class Numerics:
    """How the computer counts."""

    dtype: Annotated[Literal["float32", "float64"], "of walkers and parameters"] = "float32"
    matmul_precision: Annotated[
        Literal["highest", "high", "default"], "of matrix products on a GPU"
    ] = "highest"


@dataclass(frozen=True)
class Output:
    """What is kept, and how often."""

    flush_seconds: Annotated[float, above(0), "between two commits to the store"] = 10.0
    snapshots: Annotated[int, between(0, 1000), "of all walkers, spread over evaluation"] = 10


@dataclass(frozen=True)
class Resources:
    """What the job needs of a machine, in the words of sbatch."""

    nodes: Annotated[int, between(1, 100_000), "machines that share a run, a rank on each"] = 1
    gpus: Annotated[int, between(0, 1000), "per node"] = 1
    runs_per_job: Annotated[int, between(1, 1000), "runs that share a job, and its GPUs"] = 1
    cpus: Annotated[int | None, between(1, 100_000), "per node"] = None
    time: Annotated[str | None, WALL_TIME, "wall time"] = None
    mem: Annotated[str | None, MEMORY, "per node"] = None
    gres: Annotated[str | None, ONE_LINE, "generic resources, instead of gpus"] = None
    partition: Annotated[str | None, ONE_LINE, "queue of machines"] = None
    qos: Annotated[str | None, ONE_LINE, "quality of service"] = None
    constraint: Annotated[str | None, ONE_LINE, "features that a node must have"] = None

    @property
    def time_s(self) -> float | None:
        """The wall time in seconds."""
        return None if self.time is None else wall_time_s(self.time)

    def clashes(self) -> Iterator[Clash]:
        """Runs that share several nodes, and GPUs that are not to be shared out."""
        if self.runs_per_job > 1 and self.nodes > 1:
            message = "runs can share a job on one node only; set resources.nodes = 1"
            yield Clash(("runs_per_job", "nodes"), message)


@dataclass(frozen=True)
class Container:
    """Where the software comes from."""

    image: Annotated[
        str | None,
        matching(r"[^\x00-\x1f\x7f]+", "the path of an image"),
        "an Apptainer image, instead of the site's",
    ] = None
    sha256: Annotated[str | None, DIGEST, "that the image must have, the site's too"] = None


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """One job, resolved: one seed, nothing swept, every default filled in."""

    name: Annotated[Name, 'what to call the runs, like name = "h2"']
    seed: Annotated[Seed, "of all random numbers"] = 0
    system: Annotated[System, 'the molecule: [system], and below it atoms = [["He", 0, 0, 0]]']
    ansatz: Ansatz = DEFAULT_ANSATZ
    sampler: Sampler = Sampler()
    pretrain: Pretrain = Pretrain()
    optimizer: Optimizer = DEFAULT_OPTIMIZER
    train: Train = Train()
    evaluate: Evaluate = DEFAULT_EVALUATE
    numerics: Numerics = Numerics()
    output: Output = Output()
    resources: Resources = Resources()
    container: Container = Container()

    def __post_init__(self) -> None:
        """Settle what depends on another table: whether to pretrain, and in which basis."""
        if self.pretrain.steps == BY_START:
            steps = 0 if self.train.start_from else PRETRAIN_STEPS
            object.__setattr__(self, "pretrain", replace(self.pretrain, steps=steps))
        if self.pretrain.basis == AUTO:
            is_diffuse = self.system.charge < 0 or self.system.spin >= 2
            basis = choose(self.system.charges, is_diffuse)
            object.__setattr__(self, "pretrain", replace(self.pretrain, basis=basis))

    def clashes(self) -> Iterator[Clash]:
        """No step at all, two starts at once, and a method that does not suit the spin."""
        if self.pretrain.method == "rhf" and self.system.spin:
            message = f"rhf has no unpaired electrons, and there are {self.system.spin}"
            yield Clash(("pretrain", "system"), f"{message}; use uhf or rohf", ("method",))
        missing = [
            atom.symbol
            for atom, charge in zip(self.system.atoms, self.system.charges, strict=True)
            if self.pretrain.steps and not covers(self.pretrain.basis, charge)
        ]
        if missing:
            elements = enumerate_words(list(dict.fromkeys(missing)), "and")
            message = f"{self.pretrain.basis} has no functions for {elements}; choose another basis"
            yield Clash(("pretrain", "system"), message, ("basis",))
        if self.train.start_from and self.pretrain.steps:
            message = "a run that starts from another has been pretrained; leave one of both out"
            yield Clash(("train", "pretrain"), message, ("start_from",))
        yield from self._memory_clashes()
        if self.train.steps == self.evaluate.steps == 0:
            message = "train.steps is 0 too, so that nothing would be computed"
            yield Clash(("evaluate", "train"), message, ("steps",))

    def _memory_clashes(self) -> Iterator[Clash]:
        """More than devices can have, or, without GPUs, than is asked for of the nodes."""
        size, resources = measure(self), self.resources
        n_devices = resources.nodes * max(1, resources.gpus)
        needed = (
            f"{self.sampler.walkers} walkers and {size.parameters} parameters need at least "
            f"{format_bytes(size.memory_bytes)} of memory"
        )
        if size.memory_bytes > DEVICE_BYTES * n_devices:
            message = f"{needed}, more than {n_devices} x {format_bytes(DEVICE_BYTES)}"
            yield Clash(("sampler", "ansatz", "system"), f"{message}, and no device has as much")
        elif resources.mem is not None and not resources.gpus:
            asked = resources.nodes * memory_mb(resources.mem) * 2**20
            if size.memory_bytes > asked:
                message = f"{needed}, and resources.mem asks for {format_bytes(asked)} in all"
                yield Clash(("sampler", "ansatz", "system"), message)
