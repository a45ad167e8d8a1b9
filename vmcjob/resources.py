"""What may be asked of a batch system, and how it is written: the words of sbatch."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final  # Any: fields of several types

from vmcjob.document import accept, between, describe_mismatch, keys_of, matching
from vmcjob.errors import UsageError

ONE_LINE = matching(r"[^\x00-\x1f\x7f]+", "a string of one line")
UNLIMITED = "UNLIMITED"
ALL_MEMORY = "0"  # sbatch's word for all memory of a node


def _clock_time(text: str) -> str:
    """A time with units, such as 90min or 1d 12h, as a wall time; other texts unchanged."""
    pattern = r"(?:(\d{1,3})d)?(?:(\d{1,3})h)?(?:(\d{1,4})m(?:in)?)?"
    found = re.fullmatch(pattern, text.lower().replace(" ", ""))
    if found is None:
        return text
    days, hours, minutes = (int(part or 0) for part in found.groups())
    hours, minutes = 24 * days + hours + minutes // 60, minutes % 60
    return f"{hours:02}:{minutes:02}:00"


def _amount(text: str) -> str:
    """An amount of memory in capitals and without spaces, and GiB as GB: both are 1024 MB."""
    return text.upper().replace(" ", "").replace("IB", "B")


WALL_TIME = matching(
    r"(?![0:-]+$)(\d{1,3}-)?\d{1,3}:[0-5]\d:[0-5]\d|(?![0:-]+$)\d{1,3}-\d{1,2}(:[0-5]\d)?|"
    + UNLIMITED,
    'a wall time like "02:30:00", "1-12:00:00" or "1-12" (days-hours), or "UNLIMITED"',
    _clock_time,
)
"""sbatch also takes "30" and "02:30", minutes and seconds, which people read as hours."""
MEMORY = matching(
    r"[1-9]\d{0,5}[MGT]B?|[1-9]\d{0,8}KB?|0",
    'an amount of memory like "16GB", or "0" for all of a node',
    _amount,
)

DIGEST = matching(r"[0-9a-f]{64}", "a sha256: 64 hexadecimal digits")


def wall_time_s(text: str) -> float:
    """Seconds of a wall time; infinity without a limit. After days come hours, then minutes."""
    if text == UNLIMITED:
        return math.inf
    days, dash, clock = text.rpartition("-")
    hours, minutes, seconds = map(int, (clock + ":0:0" if dash else clock).split(":")[:3])
    return float(((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds)


def format_memory(megabytes: int) -> str:
    """An amount of memory as sbatch reads it, in gigabytes where these are whole."""
    return f"{megabytes}MB" if megabytes % 1024 else f"{megabytes // 1024}GB"


def memory_mb(text: str) -> int:
    """Megabytes of an amount of memory, 1024 of them to a gigabyte as in SLURM; 0 for `"0"`."""
    if text == ALL_MEMORY:
        return 0
    amount = text.removesuffix("B")
    kilobytes = int(amount[:-1]) * 1024 ** "KMGT".index(amount[-1])
    return math.ceil(kilobytes / 1024)


@dataclass(frozen=True)
class Retries:
    """How many times a run on a cluster goes on by itself after what is no fault of its own.

    What diverges is sent back within its job (`train.rollbacks`); what has come to the end of its
    wall time goes on as long as it takes.
    """

    preemption: Annotated[
        int | None, between(0, 1000), "times that its job may be taken away; any number"
    ] = None
    node_failure: Annotated[
        int | None,
        between(0, 1000),
        "times that its node may fail, or its job be killed without a warning; any number",
    ] = None
    out_of_memory: Annotated[
        int | None,
        between(0, 1000),
        "times that it begins again at its last commit where memory was lacking; 0",
    ] = None
    memory_factor: Annotated[
        float | None,
        between(1.1, 10.0),
        "by which each such attempt asks for more memory per node, in a new job; 1",
    ] = None
    memory_ceiling: Annotated[
        str | None, MEMORY, "the most memory per node to ask for then; no limit"
    ] = None

    def over(self, others: "Retries") -> "Retries":
        """What is said here, and where nothing is, what the others say."""
        said = {key: value for key, value in vars(self).items() if value is not None}
        return replace(others, **said)


DEFAULT_RETRIES: Final = Retries()


@dataclass(frozen=True)
class Flag:
    """How a key of a request is written on a command line, beside its own name."""

    metavar: str
    short: str = ""
    words: str = ""  # where a command's help needs others than the key's own
    is_list: bool = False  # may be given several times


def flag(metavar: str, short: str = "", *, words: str = "", is_list: bool = False) -> Any:
    """A field that is an option of every command that submits; not said by default."""
    about = {"flag": Flag(metavar, short, words, is_list)}
    return field(default=() if is_list else None, metadata=about)


@dataclass(frozen=True, kw_only=True)
class Request:
    """Options of sbatch as a site's profile or a command's flags give them; None: not said.

    Whatever is declared here is a key of `[slurm]` in a profile and an option of every command.
    """

    partition: Annotated[str | None, ONE_LINE, "queue of machines"] = flag("NAME", "-p")
    account: Annotated[str | None, ONE_LINE, "who pays"] = flag("NAME", "-A")
    qos: Annotated[str | None, ONE_LINE, "quality of service"] = flag("NAME", "-q")
    time: Annotated[str | None, WALL_TIME, "wall time"] = flag("H:MM:SS", "-t")
    mem: Annotated[str | None, MEMORY, "memory per node"] = flag(
        "SIZE", words="memory per node, like 16GB"
    )
    gres: Annotated[str | None, ONE_LINE, "generic resources, instead of the spec's gpus"] = flag(
        "LIST", words="instead of the spec's gpus"
    )
    constraint: Annotated[str | None, ONE_LINE, "features that a node must have"] = flag(
        "LIST", "-C", words="node features"
    )
    extra: Annotated[
        tuple[Annotated[str, ONE_LINE], ...],
        'further options of sbatch, like ["exclusive", "reservation=vmc"]',
    ] = flag("KEY=VALUE", words="any other option of sbatch", is_list=True)

    def flags(self) -> Iterator[str]:
        """The flags of a command line that give the same request."""
        for name, value in vars(self).items():
            values = value if isinstance(value, tuple) else (value,)
            yield from (f"--{name}={one}" for one in values if one is not None)

    def check(self) -> None:
        """UsageError if a flag says what cannot be; a profile has been judged by its reader."""
        for name, key in keys_of(type(self)).items():
            value = getattr(self, name)
            if isinstance(value, str) and accept(key.kind, value) is None:
                raise UsageError(f"--{name}: {describe_mismatch(key.kind, value)}")
