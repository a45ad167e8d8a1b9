"""Names of rows of a table; rows with equal names and different science get distinct names."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

MAX_DIFFERENCES = 2  # largest number of keys of a spec in a row's name

Method = Mapping[str, int | float | str]  # keys of a spec


def tell_apart(names: Sequence[str], methods: Sequence[Method], marks: Sequence[str]) -> list[str]:
    """The names; equal names are followed by the keys in which their rows differ.

    Args:
        names: of all rows.
        methods: keys of each row's spec.
        marks: a unique mark of each row, used if keys do not distinguish the rows.
    """
    found = list(names)
    alike: dict[str, list[int]] = defaultdict(list)
    for at, name in enumerate(names):
        alike[name].append(at)
    for name, places in alike.items():
        if len(places) == 1:
            continue
        words = _differences([methods[at] for at in places])
        for at, own in zip(places, words, strict=True):
            found[at] = f"{name} ({own or marks[at]})"
    return found


def _differences(methods: Sequence[Method]) -> list[str]:
    """The keys in which methods differ, in words; empty if there are too many.

    If tables of different kinds are compared, only their kinds are named.
    """
    names = list(dict.fromkeys(name for method in methods for name in method))
    unlike = [name for name in names if len({method.get(name) for method in methods}) > 1]
    kinds = {name.partition(".")[0] for name in unlike if name.endswith(".kind")}
    told = [n for n in unlike if n.endswith(".kind") or n.partition(".")[0] not in kinds]
    words = [", ".join(f"{n}={method[n]}" for n in told if n in method) for method in methods]
    is_told = 0 < len(told) <= MAX_DIFFERENCES and len(set(words)) == len(words)
    return words if is_told else [""] * len(methods)
