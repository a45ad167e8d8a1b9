"""The JSON Schema of a document, from the dataclasses that read it.

Editors complete and explain keys by it. A type with `from_toml` says its own schema by the static
method `json_schema`; a rule says in `Rule.schema` the part of itself that JSON Schema can express.
"""

import dataclasses
from pathlib import Path
from typing import Any, Final, TypeAlias, get_args, get_origin

from vmcjob.document.keys import Key, Kind, is_table, keys_of, kind_of, variants_of

Schema: TypeAlias = dict[str, Any]  # JSON

_DIALECT: Final = "http://json-schema.org/draft-07/schema#"
_TYPES: Final = {bool: "boolean", int: "integer", float: "number", str: "string", Path: "string"}


def json_schema(title: str, *roots: type) -> Schema:
    """The schema of a document whose top level the dataclasses share."""
    keys = {name: key for root in roots for name, key in keys_of(root).items()}
    return {"$schema": _DIALECT, "title": title} | _object(keys)


def _object(keys: dict[str, Key]) -> Schema:
    """A table: its keys, of which no other may be given."""
    required = [name for name, key in keys.items() if key.is_required]
    schema: Schema = {
        "type": "object",
        "properties": {name: _of_key(key) for name, key in keys.items()},
        "additionalProperties": False,
    }
    return schema | ({"required": required} if required else {})


def _of_key(key: Key) -> Schema:
    schema = _of_kind(key.kind)
    if key.kind.meaning:
        schema["description"] = key.kind.meaning
    is_plain = isinstance(key.default, str | int | float)
    if is_plain and all(rule.holds(key.default) for rule in key.kind.rules):
        schema["default"] = key.default
    return schema


def _of_kind(kind: Kind) -> Schema:
    """The schema of a value."""
    if hasattr(kind.type, "from_toml"):
        return kind.type.json_schema()
    if variants := variants_of(kind.type):
        return {"oneOf": [_variant(part, i == 0) for i, part in enumerate(variants.values())]}
    if is_table(kind.type):
        return _table(kind.type)
    rules = {name: value for rule in kind.rules for name, value in rule.schema}
    if get_origin(kind.type) is tuple:
        return {"type": "array", "items": _of_kind(kind_of(get_args(kind.type)[0]))} | rules
    return {"type": _TYPES[kind.type]} | rules


def _table(table: type) -> Schema:
    """The schema of a dataclass; its docstring describes it."""
    words = (table.__doc__ or "").split("\n")[0]
    schema = _object(dict(keys_of(table))) | {"description": words}
    return schema | getattr(table, "JSON_SCHEMA", {})


def _variant(table: type, is_first: bool) -> Schema:
    """One kind of a table; a document that names no kind means the first."""
    schema = _table(table)
    kind = next(field.default for field in dataclasses.fields(table) if field.name == "kind")
    schema["properties"]["kind"] = {"const": kind, "description": schema["description"]}
    return schema if is_first else schema | {"required": ["kind"]}
