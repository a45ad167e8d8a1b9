"""Turn TOML tables into dataclasses, by walking the document along its keys."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, Final, TypeVar, get_args, get_origin

from vmcjob.document.keys import Kind, expected, is_table, keys_of, kind_of, one_of, variants_of
from vmcjob.document.positions import KeyPath, Place
from vmcjob.document.scalar import accept, describe_mismatch
from vmcjob.document.suggest import about_unknown_key
from vmcjob.document.text import MAX_COMPLAINTS, WHOLE_TEXT, Complaint, Document
from vmcjob.document.wording import enumerate_words
from vmcjob.document.writer import format_path, format_short, format_value

T = TypeVar("T")


class Failure(Enum):
    """The result of reading a value that has a complaint."""

    FAILED = "failed"


FAILED: Final = Failure.FAILED


class Reader:
    """Reads dataclasses from one document and collects every complaint on the way.

    Args:
        roots: the dataclasses that share the top level of the document.
        moved: the paths in the text of values that the spec's tables have at another path.
    """

    def __init__(
        self, document: Document, *roots: type, moved: Mapping[KeyPath, KeyPath] | None = None
    ) -> None:
        self.document = document
        self.roots = roots
        self.moved = moved or {}
        self.complaints: list[Complaint] = []

    def complain(self, path: KeyPath, words: str, *, at_key: bool = False) -> Failure:
        """Record a complaint about the value at a path, or about its key, up to the limit."""
        if self.is_full:
            return FAILED
        where = self._moved(path)
        flag = self.document.flag(where)
        if flag is not None:
            self.complaints.append(Complaint(WHOLE_TEXT, f"{flag}: {words}", is_rendered=True))
            return FAILED
        place = self.document.place(where)
        offset = place.key if at_key else place.value
        self.complaints.append(Complaint(offset, f"{format_path(path)}: {words}"))
        return FAILED

    def place(self, path: KeyPath) -> Place:
        """The place of a value in the text, also of a value that has moved, or of a part of one."""
        return self.document.place(self._moved(path))

    def _moved(self, path: KeyPath) -> KeyPath:
        """The path in the text of a value, or of the value that it is a part of."""
        found = (self.moved[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self.moved)
        return next(found, path)

    @property
    def is_full(self) -> bool:
        """Whether there are already more complaints than will be shown."""
        return len(self.complaints) > MAX_COMPLAINTS

    def refuse(self, path: KeyPath, wanted: str, value: Any) -> Failure:
        return self.complain(path, f"expected {wanted}, got {format_short(value)}")

    def complain_of_repeats(self, values: Sequence[Any], path: KeyPath) -> bool:
        """Complain about every repeated element of an array; return whether there are any."""
        seen: set[str] = set()
        for i, written in enumerate(map(format_value, values)):
            if written in seen:
                self.complain((*path, i), f"{format_short(values[i])} is already in the list")
            seen.add(written)
        return len(seen) < len(values)

    def root(self, table: type[T], values: Mapping[str, Any]) -> T | Failure:
        """Read `table` from the document's top level, ignoring keys of the other roots."""
        others = {key for root in self.roots if root is not table for key in keys_of(root)}
        return self.table(table, {k: v for k, v in values.items() if k not in others}, ())

    def finish(self, result: T | Failure) -> T:
        """The result of reading; raises SpecError with all complaints if there are any."""
        self.document.refuse(self.complaints)
        if result is FAILED:
            raise RuntimeError("a value failed without a complaint")
        return result

    def value(self, kind: Kind, value: Any, path: KeyPath) -> Any:
        """Read a value of any kind; the result is `Any`, as the kind is known only at run time."""
        if hasattr(kind.type, "from_toml"):
            return kind.type.from_toml(value, path, self)
        if variants := variants_of(kind.type):
            return self.variant(variants, value, path)
        if is_table(kind.type):
            return self.table(kind.type, value, path)
        if get_origin(kind.type) is tuple:
            return self.array(kind, value, path)
        return self.scalar(kind, value, path)

    def table(self, table: type[T], values: Any, path: KeyPath) -> T | Failure:
        """Read a dataclass; if optional keys failed, still report clashes of the other keys."""
        if not isinstance(values, dict):
            return self.refuse(path, "a table", values)
        keys = keys_of(table)
        self._judge_names(table, values, path)
        results = {
            name: self.value(keys[name].kind, value, (*path, name))
            for name, value in values.items()
            if name in keys
        }
        good = {name: result for name, result in results.items() if result is not FAILED}
        if any(key.is_required and name not in good for name, key in keys.items()):
            return FAILED
        made = table(**good)
        failed = results.keys() - good.keys()
        return FAILED if self._find_clashes(made, values, failed, path) or failed else made

    def variant(self, variants: Mapping[str, type], values: Any, path: KeyPath) -> Any:
        """Read the dataclass that the key `kind` names; without that key, the first."""
        first = next(iter(variants))
        named = values.get("kind", first) if isinstance(values, dict) else first
        if isinstance(named, str) and named in variants:
            return self.table(variants[named], values, path)
        quoted = [format_value(name) for name in variants]
        kinds = Kind(str, (one_of(variants, enumerate_words(quoted, "or")),))
        return self.scalar(kinds, named, (*path, "kind"))

    def array(self, kind: Kind, values: Any, path: KeyPath) -> tuple[Any, ...] | Failure:
        is_list = isinstance(values, list)
        for number, rule in enumerate(kind.rules, start=1):
            if not (is_list and rule.holds(values)):
                return self.refuse(path, expected(replace(kind, rules=kind.rules[:number])), values)
        if not is_list:
            return self.refuse(path, expected(kind), values)
        element = kind_of(get_args(kind.type)[0])
        results = [self.value(element, value, (*path, i)) for i, value in enumerate(values)]
        return FAILED if FAILED in results else tuple(results)

    def scalar(self, kind: Kind, value: Any, path: KeyPath) -> Any:
        result = accept(kind, value)
        return self.complain(path, describe_mismatch(kind, value)) if result is None else result

    def _judge_names(self, table: type, values: Mapping[str, Any], path: KeyPath) -> None:
        """Complain about unknown keys and about missing required keys."""
        keys = keys_of(table)
        for name in [name for name in values if name not in keys]:
            if self.is_full:
                break
            is_table = isinstance(values[name], dict)
            words = _translate(table, name, values[name]) or about_unknown_key(
                name, is_table, path, table, self.roots
            )
            self.complain((*path, name), words, at_key=True)
        for name, key in keys.items():
            if key.is_required and name not in values:
                self.complain((*path, name), f"missing ({key.kind.meaning})")

    def _find_clashes(
        self, made: Any, values: Mapping[str, Any], failed: set[str], path: KeyPath
    ) -> bool:
        """Complain about values that clash with each other; return whether there are any."""
        clashes = [
            clash
            for clash in (made.clashes() if hasattr(made, "clashes") else ())
            if failed.isdisjoint(clash.keys)
        ]
        for clash in clashes:
            named = next((key for key in clash.keys if key in values), clash.keys[0])
            inside = clash.inside if named == clash.keys[0] else ()
            self.complain((*path, named, *inside), clash.message)
        return bool(clashes)


def _translate(table: type, name: str, value: Any) -> str | None:
    """What a table itself says to a key of another program, by its method `translate`."""
    translate = getattr(table, "translate", None)
    return None if translate is None else translate(name, value)
