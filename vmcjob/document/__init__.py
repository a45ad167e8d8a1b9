"""Read TOML documents into frozen dataclasses; report every mistake with its place in the text."""

from vmcjob.document.keys import (
    Before,
    Clash,
    Key,
    Kind,
    Rule,
    above,
    at_least,
    at_most_of_them,
    between,
    expected,
    from_to_below,
    inside,
    keys_of,
    kind_of,
    matching,
    one_of,
    variants_of,
)
from vmcjob.document.positions import KeyPath
from vmcjob.document.reader import FAILED, Failure, Reader
from vmcjob.document.scalar import accept, describe_mismatch, parse_value
from vmcjob.document.schema import Schema, json_schema
from vmcjob.document.text import Complaint, Document, read_text
from vmcjob.document.wording import closest, enumerate_words
from vmcjob.document.writer import format_path, format_short, format_value, write

__all__ = [
    "FAILED",
    "Before",
    "Clash",
    "Complaint",
    "Document",
    "Failure",
    "Key",
    "KeyPath",
    "Kind",
    "Reader",
    "Rule",
    "Schema",
    "above",
    "accept",
    "at_least",
    "at_most_of_them",
    "between",
    "closest",
    "describe_mismatch",
    "enumerate_words",
    "expected",
    "format_path",
    "format_short",
    "format_value",
    "from_to_below",
    "inside",
    "json_schema",
    "keys_of",
    "kind_of",
    "matching",
    "one_of",
    "parse_value",
    "read_text",
    "variants_of",
    "write",
]
