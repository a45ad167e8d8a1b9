"""Check one value against one kind, and suggest a correction if it does not fit."""

import datetime
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tomli

from vmcjob.document.keys import Kind, expected
from vmcjob.document.wording import closest
from vmcjob.document.writer import format_short


def accept(kind: Kind, value: Any) -> Any:
    """The value in the kind's own type, or None if it does not fit (TOML itself has no None)."""
    result = _convert(kind.type, value)
    is_fine = result is not None and all(rule.holds(result) for rule in kind.rules)
    return result if is_fine else None


def parse_value(text: str) -> Any:  # any value of TOML
    """A value as TOML reads it; a text that is not TOML is a string without its quotes."""
    text = text.strip()
    try:
        read = tomli.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return read["value"] if len(read) == 1 else text


def describe_mismatch(kind: Kind, value: Any) -> str:
    """Why `accept` refused a value: the expected and the given value, and a likely correction."""
    wanted = expected(kind)
    if isinstance(value, float) and not math.isfinite(value):
        wanted = wanted.replace("a number", "a finite number")
    words = f"expected {wanted}, got {format_short(value)}"
    if _is_too_long(value):
        return f"{words}; integers have 64 bits"
    meant = next((v for v in _repairs(kind, value) if accept(kind, v) is not None), None)
    return words if meant is None else f"{words}; did you mean {format_short(meant)}?"


def _convert(type_: Any, value: Any) -> Any:
    """The value in a type, or None. Types must match exactly: in Python, True is an int."""
    if _is_too_long(value):
        return None
    if type_ is float and type(value) in (int, float):
        return float(value) + 0.0 if math.isfinite(value) else None  # + 0.0 turns -0.0 into 0.0
    if type_ is Path and type(value) is str and value:
        return Path(value)
    return value if type(value) is type_ else None


def _is_too_long(value: Any) -> bool:
    """Whether an integer has more than the 64 bits that TOML guarantees."""
    return type(value) is int and not -(2**63) <= value < 2**63


def _repairs(kind: Kind, value: Any) -> Iterator[Any]:
    """Likely corrections: without quotes, spelt right, as an integer, with quotes."""
    match value:
        case str():
            yield from (rule.repair(value) for rule in kind.rules if rule.repair is not None)
            try:
                yield tomli.loads(f"value = {value.lower()}")["value"]
            except (ValueError, RecursionError):  # not TOML; too long for a number; too deep
                yield closest(value, [choice for rule in kind.rules for choice in rule.choices])
        case float() if value.is_integer():
            yield int(value)
        case bool() | int() | datetime.date() | datetime.time():
            yield format_short(value)
