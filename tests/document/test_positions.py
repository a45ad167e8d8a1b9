"""The scanner against the parser: what stands at a place is what the parser has read."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tomli
from hypothesis import given, settings
from hypothesis import strategies as st

from vmcjob.document.positions import KeyPath, Scan

EVERY_FORM = Path(__file__).with_name("every_form.toml").read_text(encoding="utf-8")


def leaves(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Every value that is no container, with its path."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, (*path, key))
    else:
        yield path, value


def value_at(text: str, offset: int) -> list[Any]:
    """All values that the parser reads from beginnings of the text that starts at an offset."""
    values = []
    for end in range(offset + 1, len(text) + 1):
        try:
            values.append(tomli.loads(f"value = {text[offset:end]}")["value"])
        except (tomli.TOMLDecodeError, KeyError):
            continue
    return values


def assert_places_are_right(text: str) -> None:
    places = Scan(text).places
    for path, value in leaves(tomli.loads(text)):
        place = places[path]
        assert repr(value) in map(repr, value_at(text, place.value)), path
        before = text[max(0, place.value - 1)]
        assert before in " \t\n=[,", path
        if isinstance(path[-1], str):
            key = text[place.key : place.value].rpartition("=")[0]
            assert list(tomli.loads(f"{key} = 0")) == [path[-1]]


def test_every_form_of_toml_has_its_place() -> None:
    """One of each: keys and strings of all kinds, dates with spaces, arrays, tables of tables."""
    assert_places_are_right(EVERY_FORM)


strings = st.text(st.sampled_from("a=.#[]{},'\"\\\n é"), max_size=6)
keys = st.sampled_from(["a", "b-1", "'x.y'", '"q\\"#"', "c . d"])
blanks = st.sampled_from(["", " ", "\t"])
array_blanks = st.sampled_from(["", " ", "\n", "  # ] } ' \" =\n"])


@st.composite
def scalars(draw: st.DrawFn) -> str:
    text = draw(strings)
    basic = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    literal = "".join(c for c in text if c not in "'\n")
    forms = [f'"{basic}"', f"'{literal}'", f'"""{basic}\n"""', f"'''{literal}\n'''"]
    return draw(st.sampled_from([*forms, "1.5", "true", "07:32:00", "1979-05-27 07:32:00"]))


@st.composite
def inline_tables(draw: st.DrawFn, values: st.SearchStrategy[str]) -> str:
    pairs = draw(st.lists(st.tuples(keys, values), max_size=3, unique_by=lambda pair: pair[0]))
    return "{" + ", ".join(f"{key}{draw(blanks)}= {value}" for key, value in pairs) + "}"


@st.composite
def arrays(draw: st.DrawFn, values: st.SearchStrategy[str]) -> str:
    parts = [
        f"{draw(array_blanks)}{value}{draw(array_blanks)}"
        for value in draw(st.lists(values, max_size=3))
    ]
    return f"[{','.join(parts)}{draw(array_blanks)}]"


values = st.recursive(scalars(), lambda inner: arrays(inner) | inline_tables(inner), max_leaves=6)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Documents in a layout that nobody would choose."""
    lines = []
    for table in ["", "[t]", "[t.'u v']", "[[rows]]", "[[rows]]", "[ rows . inner ]"]:
        lines.append(draw(blanks) + table)
        pairs = draw(st.lists(st.tuples(keys, values), max_size=3, unique_by=lambda pair: pair[0]))
        lines += [f"{draw(blanks)}{key} ={draw(blanks)}{value} # c" for key, value in pairs]
    return "\n".join(lines)


@given(documents())
@settings(max_examples=80, derandomize=True, deadline=None)
def test_random_layouts_do_not_mislead_it(text: str) -> None:
    """Brackets in strings, quotes in comments, keys with dots: each once confused a scanner."""
    assert_places_are_right(text)


def test_a_table_stands_at_its_header() -> None:
    """Its key is the name and its value begins with the bracket; that of an inline table too."""
    text = "\n[one]\nx = 1\n[[two]]\ny = {z = 2}\n"
    places = Scan(text).places
    assert places["one",] == (text.index("one"), text.index("[one"))
    assert places["two", 0] == (text.index("two"), text.index("[[two"))
    assert places["two", 0, "y"] == (text.index("y"), text.index("{z"))


def test_a_text_may_break_off_anywhere() -> None:
    """Complaints about bad syntax look at what stands before it: the scan has to end, in place."""
    paths = Scan(EVERY_FORM).places.keys()
    for end in range(len(EVERY_FORM)):
        scan = Scan(EVERY_FORM[:end])
        assert all(place.key <= end and place.value <= end for place in scan.places.values())
        for path in scan.places.keys() - paths:  # a key cut short: it is the last one
            assert scan.last
            assert scan.places[path].key == scan.last.place.key
