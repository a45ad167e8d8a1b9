"""One word, one meaning: no name in the code is a word that the glossary has replaced."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "vmcjob"
ROW = re.compile(r"^\| `(?P<old>[\w/ ,`]+)` \| (?P<new>.+) \|$", re.MULTILINE)
SUPERLATIVE = re.compile(r"_?(MOST|LONGEST|LARGEST|BIGGEST)(_|$)")


def replaced() -> dict[str, str]:
    """The words that are not to be used for what they meant, each with its successor."""
    text = (ROOT / "docs/glossary.md").read_text("utf-8")
    table = text.partition("| replaced |")[2].partition("\n\n")[0]
    found = {}
    for row in ROW.finditer(table):
        for word in re.split(r"[`, ]+", row["old"]):
            found[word.lower()] = row["new"]
    return found


def names(path: Path) -> Iterator[str]:
    """What a file calls its module, classes, functions, their arguments, and constants."""
    yield path.stem
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id.isupper():
            yield node.id


def words(name: str) -> set[str]:
    """The words that a name is made of, in lower case: HeartbeatWriter, heartbeat_writer."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


FILES = sorted(PACKAGE.rglob("*.py"))


def test_the_glossary_has_replaced_some_words() -> None:
    """Without them, the test below would test nothing."""
    assert {"pulse", "mirror", "wishes", "ticket", "anew"} <= set(replaced())


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_name_is_a_word_that_was_replaced(path: Path) -> None:
    old = replaced()
    for name in names(path):
        for word in words(name) & set(old):
            pytest.fail(f"{path.name}: {name}: not '{word}' but {old[word]}")
        assert not SUPERLATIVE.search(name) or not name.isupper(), f"{path.name}: {name}: MAX_…"
