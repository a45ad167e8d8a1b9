"""Write dataclasses and values as TOML, in one canonical spelling."""

import datetime
import json
import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from vmcjob.document.keys import keys_of
from vmcjob.document.positions import KeyPath

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_WIDEST_VALUE = 40
_DECIMAL_BITS = 1000


def format_value(value: Any) -> str:
    """A value as one line of TOML; a float is read back bit for bit."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() if value.bit_length() > _DECIMAL_BITS:
            return hex(value)  # Python refuses to write thousands of decimal digits
        case int() | float() | datetime.date() | datetime.time():
            return str(value)
        case str() | PurePath():
            return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
        case dict():
            return (
                f"{{{', '.join(f'{format_key(k)} = {format_value(v)}' for k, v in value.items())}}}"
            )
        case list() | tuple():
            return f"[{', '.join(format_value(element) for element in value)}]"
    return format_value(value.to_toml())


def format_short(value: Any) -> str:
    """A value for use in a complaint: long text is cut, arrays and tables are only counted."""
    match value:
        case dict():
            return "a table"
        case []:
            return "an empty array"
        case [dict(), *_]:
            return "an array of tables"
        case list():
            return f"an array of {len(value)} value{'s' * (len(value) > 1)}"
    text = format_value(value)
    return text if len(text) <= _WIDEST_VALUE else f"{text[: _WIDEST_VALUE - 1]}…"


def format_key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else format_value(key)


def format_path(path: KeyPath) -> str:
    """A path in words: ``system.atoms[1]`` for ``("system", "atoms", 1)``."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{format_key(part)}" for part in path)
    return "".join(parts).removeprefix(".")


def write(table: Any) -> str:
    """The TOML text of a dataclass: all keys that are not None, then the tables."""
    return "\n".join(_lines(table, ())) + "\n"


def _lines(table: Any, path: KeyPath) -> Iterator[str]:
    """Lines of a table: plain keys first, because below a header they would belong to its table."""
    keys = keys_of(type(table))
    for name, key in keys.items():
        value = getattr(table, name)
        if value is not None and not key.is_table:
            yield f"{name} = {format_value(value)}"
    for name, key in keys.items():
        if key.is_table and (inner := list(_lines(getattr(table, name), (*path, name)))):
            yield from ("", f"[{format_path((*path, name))}]", *inner)
