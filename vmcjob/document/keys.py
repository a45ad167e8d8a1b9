"""The rules for a TOML key, taken from the annotation of its dataclass field.

    walkers: Annotated[int, between(2, 4096), "in all, shared by the devices"] = 512

gives the key's name, type, range, meaning and default. The reader checks documents against these
rules. `keys_of` lists the keys of a table for all other uses.
"""

import dataclasses
import re
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

from vmcjob.document.positions import KeyPath
from vmcjob.document.wording import enumerate_words

Hint: TypeAlias = Any  # a type in an annotation: Python has no common base class for these


@dataclass(frozen=True)
class Rule:
    """A condition on a value; `phrase` states it, with {} for the kind of value ("a number")."""

    phrase: str
    holds: Callable[[Any], bool]  # gets a value of the key's own type
    choices: tuple[str, ...] = ()
    schema: tuple[tuple[str, Any], ...] = ()
    """The condition in the words of JSON Schema, as far as there are any."""
    repair: Callable[[str], str] | None = None
    """A likely meaning of a text that breaks the rule, as a text that may keep the rule."""


def at_least(least: float) -> Rule:
    return Rule(
        f"{{}} of at least {least}", lambda value: value >= least, schema=(("minimum", least),)
    )


def above(bound: float) -> Rule:
    return Rule(
        f"{{}} above {bound}", lambda value: value > bound, schema=(("exclusiveMinimum", bound),)
    )


def between(low: float, high: float) -> Rule:
    """From low to high, both ends included."""
    return Rule(
        f"{{}} from {low} to {high}",
        lambda value: low <= value <= high,
        schema=(("minimum", low), ("maximum", high)),
    )


def inside(low: float, high: float) -> Rule:
    """Between low and high, both ends excluded."""
    return Rule(
        f"{{}} between {low} and {high}",
        lambda value: low < value < high,
        schema=(("exclusiveMinimum", low), ("exclusiveMaximum", high)),
    )


def from_to_below(low: float, high: float) -> Rule:
    """From low, which is included, to high, which is excluded."""
    return Rule(
        f"{{}} from {low} to below {high}",
        lambda value: low <= value < high,
        schema=(("minimum", low), ("exclusiveMaximum", high)),
    )


def at_most_of_them(most: int) -> Rule:
    """At most so many elements of an array."""
    return Rule(
        f"{{}}, at most {most} of them",
        lambda values: len(values) <= most,
        schema=(("maxItems", most),),
    )


def matching(pattern: str, phrase: str, repair: Callable[[str], str] | None = None) -> Rule:
    """A string that the whole pattern matches; `phrase` describes the pattern to users."""
    compiled = re.compile(pattern)
    return Rule(
        phrase,
        lambda value: compiled.fullmatch(value) is not None,
        schema=(("pattern", f"^(?:{pattern})$"),),
        repair=repair,
    )


def one_of(choices: Iterable[str], phrase: str) -> Rule:
    """One of a few strings; for a misspelt one, the complaint suggests the nearest."""
    choices = tuple(choices)
    return Rule(phrase, lambda value: value in choices, choices, (("enum", choices),))


@dataclass(frozen=True)
class Before:
    """The value that a missing key has in documents older than the key, as TOML writes it.

    Declared together with the key and never changed: the identity of old documents depends on it.
    """

    # None: the key may still be left out, and its absence has the same meaning as before
    value: str | int | float | bool | tuple[()] | None


@dataclass(frozen=True)
class Kind:
    """The content of an annotation: the bare type, the rules and the meaning in words."""

    type: Hint
    rules: tuple[Rule, ...] = ()
    meaning: str = ""
    before: Before | None = None


def kind_of(hint: Hint) -> Kind:
    """The kind of an annotation; None in a union means "may be left out": TOML has no None."""
    if isinstance(hint, dataclasses.InitVar):
        return kind_of(hint.type)
    if variants_of(hint):
        return Kind(hint)
    if isinstance(hint, types.UnionType):
        (inner,) = (part for part in get_args(hint) if part is not types.NoneType)
        return kind_of(inner)
    if get_origin(hint) is Literal:
        quoted = [f'"{choice}"' for choice in get_args(hint)]
        return Kind(str, (one_of(get_args(hint), enumerate_words(quoted, "or")),))
    if get_origin(hint) is not Annotated:
        return Kind(hint)
    inner = kind_of(hint.__origin__)
    rules = tuple(extra for extra in hint.__metadata__ if isinstance(extra, Rule))
    words = " ".join(extra for extra in hint.__metadata__ if isinstance(extra, str))
    before = next((extra for extra in hint.__metadata__ if isinstance(extra, Before)), None)
    return Kind(inner.type, inner.rules + rules, words or inner.meaning, before or inner.before)


@dataclass(frozen=True)
class Key:
    """One key of a table: its kind and its default."""

    kind: Kind
    default: Any  # of the key's own type; MISSING if the document must give the key

    @property
    def is_required(self) -> bool:
        return self.default is dataclasses.MISSING

    @property
    def is_table(self) -> bool:
        return is_table(self.kind.type)


def is_table(type_: Hint) -> bool:
    """Whether TOML writes this type as a table; a type with `from_toml` has a form of its own."""
    return all(
        dataclasses.is_dataclass(variant) and not hasattr(variant, "from_toml")
        for variant in variants_of(type_).values() or (type_,)
    )


def variants_of(type_: Hint) -> dict[str, type]:
    """The dataclasses of a union, by their value of the key `kind`; empty for other types."""
    if not isinstance(type_, types.UnionType):
        return {}
    return {part.kind: part for part in get_args(type_) if hasattr(part, "kind")}


@cache
def keys_of(table: Hint) -> dict[str, Key]:
    """The keys of the table that a dataclass describes, in the order of its fields.

    For a union of dataclasses, the keys of all of them.
    """
    if variants := variants_of(table):
        return {name: key for part in variants.values() for name, key in keys_of(part).items()}
    hints = get_type_hints(table, include_extras=True)
    return {
        name: Key(kind_of(hint), getattr(table, name, dataclasses.MISSING))
        for name, hint in hints.items()
    }


NOUNS: dict[Hint, str] = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a string",
    tuple: "an array",
    Path: "a path",
}


def expected(kind: Kind) -> str:
    """The expected value in words, as the end of the sentence "expected …"."""
    phrase = NOUNS.get(get_origin(kind.type) or kind.type, "a table")
    for rule in kind.rules:
        phrase = rule.phrase.replace("{}", phrase)
    return phrase


@dataclass(frozen=True)
class Clash:
    """Values that are valid one by one but not together.

    A dataclass with such values has a method `clashes`, which yields clashes.
    """

    keys: tuple[str, ...]
    """All keys of the clash; the complaint points at the first key that the document gives."""
    message: str
    inside: KeyPath = ()
    """Place of the complaint inside the array or table of the first key."""
