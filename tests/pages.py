"""README and the pages of docs/ for tests: blocks of code, each with the comment before it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
_BUILT = ROOT / "docs/_build"
_SITE = sorted(page for page in ROOT.glob("docs/**/*.md") if not page.is_relative_to(_BUILT))
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *_SITE)
_BLOCK = re.compile(
    r"(?:^<!-- (?P<comment>[^\n]*) -->\n)?^```(?P<language>[a-z]+)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    language: str
    comment: str  # of the line before; empty without one
    code: str


def name_of(page: Path) -> str:
    """The path of a page in the checkout."""
    return str(page.relative_to(ROOT))


def blocks(language: str) -> Iterator[Block]:
    """All blocks of a language, page by page."""
    for page in PAGES:
        for found in _BLOCK.finditer(page.read_text("utf-8")):
            if found["language"] == language:
                yield Block(page, language, found["comment"] or "", found["code"])


def block(language: str, comment: str) -> Block:
    """The one block of a language with this comment."""
    (found,) = (one for one in blocks(language) if one.comment == comment)
    return found
