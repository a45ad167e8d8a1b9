"""Changes of a spec by flags of a command: `--set`, `--sweep` and `--seeds`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from vmcjob.document import Document, KeyPath, parse_value
from vmcjob.errors import UsageError


@dataclass(frozen=True)
class Overrides:
    """Changes of a spec, as a user types them."""

    values: Sequence[str] = ()
    """Each like "sampler.walkers=1024"."""
    axes: Sequence[str] = ()
    """Each like "optimizer.damping=1e-3,1e-2"."""
    n_seeds: int | None = None

    def apply(self, document: Document) -> Document:
        """The document with the changes; UsageError for a change without a key or a value."""
        tables, flags = document.tables, dict[KeyPath, str]()
        for text in self.values:
            key, value = _split("--set", text)
            path = tuple(key.split("."))
            tables = _put(tables, path, parse_value(value))
            flags[path] = f"--set {text}"
        for text in self.axes:
            key, value = _split("--sweep", text)
            values = (
                parse_value(value)
                if value.startswith("[")
                else [*map(parse_value, value.split(","))]
            )
            tables = _put(tables, ("sweep", key), values)
            flags["sweep", key] = f"--sweep {text}"
        if self.n_seeds is not None:
            tables = _with_seeds(tables, self.n_seeds)
            flags["seeds",] = f"--seeds {self.n_seeds}"
        return replace(document, tables=tables, flags=flags)


NONE: Final = Overrides()


def _split(flag: str, text: str) -> tuple[str, str]:
    """Key and value of a change."""
    key, sign, value = (part.strip() for part in text.partition("="))
    if not (sign and value and all(part for part in key.split("."))):
        example = "R=1.0,1.2,1.4" if flag == "--sweep" else "sampler.walkers=1024"
        raise UsageError(f"{flag} {text}: expected KEY=VALUE, like {flag} {example}")
    return key, value


def _put(tables: dict[str, Any], path: KeyPath, value: Any) -> dict[str, Any]:
    """A copy of the tables with a value at a path."""
    name, *rest = path
    if not rest:
        return tables | {str(name): value}
    inner = tables.get(str(name), {})
    return tables | {str(name): _put(inner if isinstance(inner, dict) else {}, tuple(rest), value)}


def _with_seeds(tables: dict[str, Any], n_seeds: int) -> dict[str, Any]:
    """The tables with so many seeds, counted from the first that the spec has."""
    seeds = tables.get("seeds")
    first = seeds[0] if isinstance(seeds, list) and seeds else tables.get("seed", 0)
    if not isinstance(first, int):
        return tables  # the reader complains of it
    rest = {name: value for name, value in tables.items() if name != "seed"}
    return rest | {"seeds": [first + i for i in range(n_seeds)]}
