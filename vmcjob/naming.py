"""Names of rows of a table: those of one name but different science are told apart."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

MAX_DIFFERENCES = 2  # keys of a spec that the name of a row has room for

Method = Mapping[str, int | float | str]  # keys of a spec


def tell_apart(names: Sequence[str], methods: Sequence[Method], marks: Sequence[str]) -> list[str]:
    """The names, each with what it has of its own behind it where it is not the only one.

    Args:
        names: of all rows.
        methods: how each was computed.
        marks: what else tells a row from others, where words do not.
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
    """What each method has of its own, in the words of a spec; nothing where that is too much.

    Where a table is of another kind, its other keys are no news.
    """
    names = list(dict.fromkeys(name for method in methods for name in method))
    unlike = [name for name in names if len({method.get(name) for method in methods}) > 1]
    kinds = {name.partition(".")[0] for name in unlike if name.endswith(".kind")}
    told = [n for n in unlike if n.endswith(".kind") or n.partition(".")[0] not in kinds]
    words = [", ".join(f"{n}={method[n]}" for n in told if n in method) for method in methods]
    is_told = 0 < len(told) <= MAX_DIFFERENCES and len(set(words)) == len(words)
    return words if is_told else [""] * len(methods)
