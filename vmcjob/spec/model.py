"""A job as data: what a spec may say, with the type, range, meaning and default of every key."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal

from vmcjob.document import (
    Before,
    Clash,
    above,
    between,
    from_to_below,
    matching,
)
from vmcjob.resources import (
    ALL_MEMORY,
    DEFAULT_RETRIES,
    DIGEST,
    MEMORY,
    ONE_LINE,
    WALL_TIME,
    Retries,
    memory_mb,
    wall_time_s,
)
from vmcjob.spec.ansatz import DEFAULT_ANSATZ, Ansatz, SlaterJastrow
from vmcjob.spec.basis import why_not
from vmcjob.spec.budget import DEFAULT_BUDGET, Budget
from vmcjob.spec.evaluate import DEFAULT_EVALUATE, MAX_STEPS, Evaluate
from vmcjob.spec.optimizer import CLIP, CLIP_WITH_CORES, DEFAULT_OPTIMIZER, Optimizer
from vmcjob.spec.pretrain import (
    BY_START,
    DEFAULT_PRETRAIN,
    PRETRAIN_STEPS,
    Pretrain,
    settled,
)
from vmcjob.spec.sampler import DEFAULT_SAMPLER, Sampler
from vmcjob.spec.size import DEVICE_BYTES, format_bytes, measure
from vmcjob.spec.system import System

MAX_ACTIVE_ORBITALS: Final = 12
"""Of CASSCF: 12 electrons in them have 850,000 determinants."""
PREVIOUS: Final = "@previous"
"""Stands for the run of the nearest point of a sweep that is listed before."""

PROFILE_KEYS: Final = ("runs", "scheduler", "max_parallel", "private", "notify", "slurm")
"""Keys of site profiles that specs do not have."""

Name = Annotated[
    str,
    matching(
        "[A-Za-z0-9][A-Za-z0-9._-]{0,63}",
        'a name like "h2-cc.1" (up to 64 letters, digits and . _ -, a letter or digit first)',
    ),
]
Seed = Annotated[int, between(0, 2**32 - 1)]


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
    spin_penalty: Annotated[
        float,
        from_to_below(0, 100),
        "hartree for each unit of S² that training adds to the energy it lowers; 0: none",
        Before(0.0),
    ] = 0.0
    until: Annotated[
        Literal["steps", "level"],
        "level: it ends when its energy has surely stopped falling, `steps` are then a ceiling",
        Before("steps"),
    ] = "steps"
    start_from: Annotated[
        str | None,
        matching(
            f"{PREVIOUS}|[A-Za-z0-9][A-Za-z0-9._-]{{0,63}}-[0-9a-f]{{10}}",
            f'a run id like "h2-1a2b3c4d5e", or "{PREVIOUS}"',
        ),
        "a run whose parameters and walkers to begin with, when it has finished; "
        f"{PREVIOUS}: that of the nearest point of the sweep listed before",
    ] = None
    follow_nuclei: Annotated[
        bool | None,
        "whether walkers of another run go along with nuclei that are elsewhere; yes",
        Before(False),
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
    """The source of the software."""

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
    sampler: Sampler = DEFAULT_SAMPLER
    pretrain: Pretrain = DEFAULT_PRETRAIN
    optimizer: Optimizer = DEFAULT_OPTIMIZER
    train: Train = Train()
    evaluate: Evaluate = DEFAULT_EVALUATE
    numerics: Numerics = Numerics()
    output: Output = Output()
    resources: Resources = Resources()
    container: Container = Container()
    budget: Budget = DEFAULT_BUDGET
    retries: Retries = DEFAULT_RETRIES

    def __post_init__(self) -> None:
        """Settle what depends on other keys: whether to pretrain, in which basis, and so on."""
        start = self.pretrain
        if start.steps == BY_START:
            start = replace(start, steps=0 if self.train.start_from else PRETRAIN_STEPS)
        object.__setattr__(self, "pretrain", settled(start, self.system))
        if self.optimizer.clip is None:
            clip = CLIP_WITH_CORES if self.system.has_cores else CLIP
            object.__setattr__(self, "optimizer", replace(self.optimizer, clip=clip))
        if self.train.follow_nuclei is None:
            train = replace(self.train, follow_nuclei=self.train.start_from is not None)
            object.__setattr__(self, "train", train)
        if not isinstance(self.ansatz, SlaterJastrow) and self.ansatz.core_holes is None:
            ansatz = replace(self.ansatz, core_holes=self.system.has_cores)
            object.__setattr__(self, "ansatz", ansatz)
        if self.sampler.jumps is None:
            # Of several, jumps would find ions that training then has to unlearn.
            is_alone = self.system.n_electrons == 1
            sampler = replace(self.sampler, jumps=is_alone and self.system.is_far_apart)
            object.__setattr__(self, "sampler", sampler)

    @staticmethod
    def translate(name: str, _: object) -> str | None:
        """Name the document of a key that belongs in a site profile; None for other keys."""
        words = "it belongs in a site profile, which --site names"
        return f"unknown here; {words}" if name in PROFILE_KEYS else None

    def clashes(self) -> Iterator[Clash]:
        """No step at all, two starts at once, and a method that does not suit the spin."""
        if self.pretrain.method == "rhf" and self.system.spin:
            message = f"rhf has no unpaired electrons, and there are {self.system.spin}"
            yield Clash(("pretrain", "system"), f"{message}; use uhf or rohf", ("method",))
        reason = why_not(self.pretrain.basis, self.system.needs, self.system.symbols)
        if self.pretrain.steps and reason:
            yield Clash(("pretrain", "system"), reason, ("basis",))
        if self.ansatz.spin_symmetric and self.system.spin:
            message = f"both spins can be exchanged only where spin = 0, got {self.system.spin}"
            yield Clash(("ansatz", "system"), message, ("spin_symmetric",))
        if self.ansatz.spin_symmetric and self.optimizer.kind == "kfac":
            # kfac-jax finds no dense layer that is used twice, and falls back to diagonals.
            message = "kfac knows no layers of a function that is used twice; use spring"
            yield Clash(("ansatz", "optimizer"), message, ("spin_symmetric",))
        wants_holes = not isinstance(self.ansatz, SlaterJastrow) and self.ansatz.core_holes
        if wants_holes and not self.system.has_cores:
            message = "no nucleus has a core potential; leave it out"
            yield Clash(("ansatz", "system"), message, ("core_holes",))
        yield from self._active_space_clashes()
        if self.train.start_from and self.pretrain.steps:
            message = "a run that starts from another has been pretrained; leave one of both out"
            yield Clash(("train", "pretrain"), message, ("start_from",))
        if self.sampler.jumps and len(self.system.atoms) == 1:
            message = "an atom has no other nucleus for electrons to jump to; leave it out"
            yield Clash(("sampler", "system"), message, ("jumps",))
        yield from self._train_clashes()
        yield from self._memory_clashes()
        if self.train.steps == self.evaluate.steps == 0:
            message = "train.steps is 0 too, so that nothing would be computed"
            yield Clash(("evaluate", "train"), message, ("steps",))

    def _train_clashes(self) -> Iterator[Clash]:
        """Keys of training that ask for what cannot be."""
        if self.train.spin_penalty and 0 in (self.system.n_up, self.system.n_down):
            message = "electrons all of one spin have one S²; leave it out"
            yield Clash(("train", "system"), message, ("spin_penalty",))
        if self.train.follow_nuclei and not self.train.start_from:
            message = "there are no walkers of another run; expected start_from too"
            yield Clash(("train",), message, ("follow_nuclei",))

    def _active_space_clashes(self) -> Iterator[Clash]:
        """An active space that has no room for its electrons, or that nothing would come of."""
        if not self.pretrain.active_space:
            return
        (electrons, orbitals), system = self.pretrain.active_space, self.system
        n_core, is_odd = divmod(system.n_electrons - electrons, 2)
        least = system.n_up - n_core
        unpaired = system.spin
        if is_odd or electrons > system.n_electrons or electrons < unpaired:
            parity, fewest = ("an odd", 1) if system.n_electrons % 2 else ("an even", 2)
            message = (
                f"{electrons} active among {system.n_electrons} electrons is impossible; expected "
                f"{parity} number from {max(fewest, unpaired)} to {system.n_electrons}"
            )
        elif not least <= orbitals <= MAX_ACTIVE_ORBITALS:
            message = (
                f"expected from {least} to {MAX_ACTIVE_ORBITALS} orbitals for {electrons} active "
                f"electrons, got {orbitals}"
            )
        elif self.pretrain.method == "uhf":
            message = "an active space has restricted orbitals; leave method out, or use rohf"
        elif self.ansatz.determinants == 1:
            message = "an ansatz of one determinant has no use for several; set ansatz.determinants"
        elif not self.pretrain.steps:
            message = "nothing is pretrained, for pretrain.steps is 0"
        else:
            return
        yield Clash(("pretrain", "system", "ansatz"), message, ("active_space",))

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
        elif resources.mem not in (None, ALL_MEMORY) and not resources.gpus:
            asked = resources.nodes * memory_mb(resources.mem) * 2**20
            if size.memory_bytes > asked:
                message = f"{needed}, and resources.mem asks for {format_bytes(asked)} in all"
                yield Clash(("sampler", "ansatz", "system"), message)
