"""Suggestions for an unknown key: its right name, or the table where it belongs."""

from collections.abc import Iterable, Mapping

from vmcjob.document.keys import Key, keys_of, variants_of
from vmcjob.document.positions import KeyPath
from vmcjob.document.wording import closest, enumerate_words


def vocabulary(roots: Iterable[type]) -> dict[str, Mapping[str, Key]]:
    """The keys of every table of a document, by the table's name; the top level is ""."""
    top = {name: key for root in roots for name, key in keys_of(root).items()}
    tables = {name: keys_of(key.kind.type) for name, key in top.items() if key.is_table}
    return {"": top, **tables}


def about_unknown_key(
    name: str, is_table: bool, path: KeyPath, table: type, roots: Iterable[type]
) -> str:
    """The complaint about a key or table that the table at a path does not have."""
    tables = vocabulary(roots)
    here = keys_of(table)
    noun = "table" if is_table else "key"
    if path and (kinds := _kinds(name, str(path[0]), roots)):
        return f"unknown {noun} of this kind; it belongs to {kinds}"
    if homes := _homes(name, tables):
        return f"unknown {noun} here; it belongs {homes}"
    same_sort = [other for other, key in here.items() if key.is_table == is_table]
    if near := closest(name, same_sort):
        return f"unknown {noun}; did you mean '{near}'?"
    if near := closest(name, {key for keys in tables.values() for key in keys}):
        return f"unknown {noun}; did you mean '{near}' {_homes(near, tables)}?"
    return f"unknown {noun}; known here: {enumerate_words(same_sort or list(here), 'and')}"


def _kinds(name: str, table: str, roots: Iterable[type]) -> str:
    """The other variants of a table that know a key, in words; empty if there are none."""
    types = {name: key.kind.type for root in roots for name, key in keys_of(root).items()}
    found = [kind for kind, part in variants_of(types[table]).items() if name in keys_of(part)]
    return enumerate_words([f'kind = "{kind}"' for kind in found], "or") if found else ""


def _homes(name: str, tables: Mapping[str, Mapping[str, Key]]) -> str:
    """The tables that know a key: ``in [train] or [evaluate]``; empty if there are none."""
    homes = [f"[{table}]" for table, keys in tables.items() if name in keys and table]
    if homes:
        return f"in {enumerate_words(homes, 'or')}"
    return "at the top of the file" if name in tables[""] else ""
