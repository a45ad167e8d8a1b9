"""What a TOML key may hold, said once: in the annotation of the dataclass field it becomes.

    walkers: Annotated[int, between(2, 4096), "in all, shared by the devices"] = 512

names the key, its type, its range, its meaning and its default. The reader judges documents by
that, and whatever else wants to speak about keys asks `keys_of`.
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

Hint: TypeAlias = Any  # a type as annotations spell it: Python has no common base for those


@dataclass(frozen=True)
class Rule:
    """A condition on a value; `phrase` says it, with {} for the kind of value, "a number"."""

    phrase: str
    holds: Callable[[Any], bool]  # of the key's own type
    choices: tuple[str, ...] = ()


def at_least(least: float) -> Rule:
    return Rule(f"{{}} of at least {least}", lambda value: value >= least)


def above(bound: float) -> Rule:
    return Rule(f"{{}} above {bound}", lambda value: value > bound)


def between(low: float, high: float) -> Rule:
    """Both ends belong to it."""
    return Rule(f"{{}} from {low} to {high}", lambda value: low <= value <= high)


def inside(low: float, high: float) -> Rule:
    """Neither end belongs to it."""
    return Rule(f"{{}} between {low} and {high}", lambda value: low < value < high)


def from_to_below(low: float, high: float) -> Rule:
    """The lower end belongs to it, the upper one does not."""
    return Rule(f"{{}} from {low} to below {high}", lambda value: low <= value < high)


def at_most_of_them(most: int) -> Rule:
    """So many elements of an array."""
    return Rule(f"{{}}, at most {most} of them", lambda values: len(values) <= most)


def matching(pattern: str, phrase: str) -> Rule:
    """A string that the whole pattern matches; the phrase describes it to people."""
    compiled = re.compile(pattern)
    return Rule(phrase, lambda value: compiled.fullmatch(value) is not None)


def one_of(choices: Iterable[str], phrase: str) -> Rule:
    """One of a few strings; a misspelt one is told the nearest."""
    choices = tuple(choices)
    return Rule(phrase, lambda value: value in choices, choices)


@dataclass(frozen=True)
class Before:
    """What a key's absence means in a document from before the key existed; TOML's own value.

    Declared with the key, once and for ever: the identity of old documents hangs on it.
    """

    # None: it may still be left out, and means that.
    value: str | int | float | bool | tuple[()] | None


@dataclass(frozen=True)
class Kind:
    """What an annotation says: the bare type, the rules on it and its meaning in words."""

    type: Hint
    rules: tuple[Rule, ...] = ()
    meaning: str = ""
    before: Before | None = None


def kind_of(hint: Hint) -> Kind:
    """Take an annotation apart; None in a union means "may be left out", which TOML cannot say."""
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
    """One key of a table: all that is known about it before a document is read."""

    kind: Kind
    default: Any  # of the key's own type; MISSING where the document has to give it

    @property
    def is_required(self) -> bool:
        return self.default is dataclasses.MISSING

    @property
    def is_table(self) -> bool:
        return is_table(self.kind.type)


def is_table(type_: Hint) -> bool:
    """Whether TOML writes this type as a table; a type may choose a form of its own instead."""
    return all(
        dataclasses.is_dataclass(variant) and not hasattr(variant, "from_toml")
        for variant in variants_of(type_).values() or (type_,)
    )


def variants_of(type_: Hint) -> dict[str, type]:
    """The dataclasses of a union, among which the table's own key `kind` chooses; else none."""
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
    """What a kind asks for, as the end of the sentence "expected …"."""
    phrase = NOUNS.get(get_origin(kind.type) or kind.type, "a table")
    for rule in kind.rules:
        phrase = rule.phrase.replace("{}", phrase)
    return phrase


@dataclass(frozen=True)
class Clash:
    """Values that are fine one by one and impossible together.

    A dataclass that can clash has a method `clashes`, which yields these.
    """

    keys: tuple[str, ...]
    """All keys that take part; the complaint points at the first that the document gives."""
    message: str
    inside: KeyPath = ()
    """Where to point inside the array or table of the first key."""
