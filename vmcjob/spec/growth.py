"""Add keys to the spec without changing existing run ids.

To add a key that decides numbers, give its annotation a `Before`: the value at which a run computes
what it computed before the key existed. This value is chosen once and never changed. The default
may differ from it, and may change later. Then

- a key at that value is left out of a run's id (`science`);
- a spec that gives all other science keys, as in every run directory, but not this key, is an old
  spec, and the key has that value. Any other spec without the key gets the default.
"""

from typing import Any

from vmcjob.document import Key, keys_of, variants_of
from vmcjob.spec.model import JobSpec
from vmcjob.spec.science import is_science

SETTLED_LATER = {("optimizer", "clip")}
"""Every old spec gives these keys. Today their default depends on other keys."""


def with_keys_of_before(tables: dict[str, Any]) -> dict[str, Any]:
    """A parsed spec; if it is an old spec in full, with the keys that were added since.

    `Any`, because the spec is not validated yet.
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
    """The value as TOML reads it."""
    return list(value) if isinstance(value, tuple) else value


def _keys(table: str, tables: dict[str, Any]) -> dict[str, Key]:
    """The keys of a table; for a table with several kinds, the keys of its kind."""
    type_ = keys_of(JobSpec)[table].kind.type
    values = tables.get(table)
    named = values.get("kind") if isinstance(values, dict) else None
    return keys_of(variants_of(type_).get(named, type_) if isinstance(named, str) else type_)


def _is_in_full(table: str, keys: dict[str, Key], tables: dict[str, Any]) -> bool:
    """Whether a table gives all science keys, except optional and newer ones."""
    values = tables.get(table)
    return isinstance(values, dict) and all(
        name in values
        for name, key in keys.items()
        if is_science((table, name))
        and (key.default is not None or (table, name) in SETTLED_LATER)
        and key.kind.before is None
    )
