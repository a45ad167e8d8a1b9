"""How the spec grows without a run of before losing its name.

To add a key that decides numbers, give its annotation a `Before`: the value that makes a run do
what it did when there was no such key. It is chosen once and never changed; the default may be
another one, and may change. Then

- a key at that value has no part in a run's id (`science`),
- a spec that writes all other keys that decide numbers, as every run directory's does, and leaves
  this one out, is of before, and means that value; any other spec means the default.
"""

from typing import Any

from vmcjob.document import Key, keys_of, variants_of
from vmcjob.spec.model import JobSpec
from vmcjob.spec.science import is_science


def with_keys_of_before(tables: dict[str, Any]) -> dict[str, Any]:
    """A parsed spec; where it was written in full before some keys existed, with those keys.

    `Any`: it has not been judged yet, and anything may stand in it.
    """
    keys = {name: _keys(name, tables) for name, key in keys_of(JobSpec).items() if key.is_table}
    if not all(_is_in_full(name, keys[name], tables) for name in keys if is_science((name,))):
        return tables
    added = {
        name: {
            k: _as_read(key.kind.before.value)
            for k, key in keys[name].items()
            if key.kind.before and key.kind.before.value is not None
        }
        for name in keys
        if name in tables
    }
    return tables | {name: added[name] | tables[name] for name in added if added[name]}


def _as_read(value: Any) -> Any:
    """As TOML would have it; `Any`: whatever a key holds."""
    return list(value) if isinstance(value, tuple) else value


def _keys(table: str, tables: dict[str, Any]) -> dict[str, Key]:
    """The keys of a table; of one with several kinds, those of the kind that it names."""
    type_ = keys_of(JobSpec)[table].kind.type
    values = tables.get(table)
    named = values.get("kind") if isinstance(values, dict) else None
    return keys_of(variants_of(type_).get(named, type_) if isinstance(named, str) else type_)


def _is_in_full(table: str, keys: dict[str, Key], tables: dict[str, Any]) -> bool:
    """Whether a table gives all keys that decide numbers but those that may be absent, or new."""
    values = tables.get(table)
    return isinstance(values, dict) and all(
        name in values
        for name, key in keys.items()
        if is_science((table, name)) and key.default is not None and key.kind.before is None
    )
