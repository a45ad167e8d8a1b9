"""A page as one HTML file, without scripts and without links to other hosts."""

import re
from collections.abc import Iterator, Mapping
from html import escape
from itertools import count

from vmcjob.results.html import html_table
from vmcjob.results.report.content import Content, CurveFacts, PageTable, Picture, RunFacts

# Dark where the reader's screen is; on paper light, without what only a screen can unfold. Cells
# wrap, and a narrow screen has a line for each cell: nothing hides behind a scrollbar.
STYLE = """
:root { --ink: #1a1a1a; --paper: #fff; --faint: #666; --line: #ddd; --ground: #f6f6f6 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e4e4; --paper: #16181b; --faint: #9a9a9a; --line: #3a3d42; --ground: #202327 }
}
@media print {
  :root { --ink: #000; --paper: #fff; --faint: #444; --line: #bbb; --ground: #fff }
  section { break-inside: avoid-page } details { display: block }
}
* { box-sizing: border-box }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: var(--ink);
  background: var(--paper); font: 15px/1.5 system-ui, sans-serif }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2.2rem } h3 { font-size: 1rem }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .6rem; text-align: left;
  vertical-align: top; overflow-wrap: break-word }
thead th { color: var(--faint); font-weight: 600 }
@media (max-width: 45rem) {
  .rows thead { display: none } .rows tr { display: block; border-bottom: 1px solid var(--line) }
  .rows td { display: grid; grid-template-columns: 7rem 1fr; border: 0; padding: .1rem 0;
    overflow-wrap: anywhere }
  .rows td:empty { display: none }
  .rows td::before { content: attr(data-title); color: var(--faint) }
} dl { display: grid; grid-template-columns: max-content 1fr;
  gap: .1rem 1rem } dt { color: var(--faint) } dd { margin: 0; overflow-wrap: anywhere }
pre { background: var(--ground); border: 1px solid var(--line); padding: .7rem; overflow-x: auto;
  font-size: 12px; white-space: pre-wrap } summary { cursor: pointer; color: var(--faint) }
figure { margin: 1rem 0; background: #fff; padding: .5rem; border: 1px solid var(--line) }
figure svg { width: 100%; height: auto } figcaption { color: #555; font-size: .85rem }
"""
# The browser itself is told to ask nobody for anything, whatever a run's texts may say.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_NAMES = re.compile(r'\b(id="|href="#|url\(#)([^")]+)')
_PROLOGUE = re.compile(r"^.*?(?=<svg)", re.DOTALL)
_METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)


def render(content: Content) -> str:
    """The page's whole text."""
    return "\n".join(_lines(content))


def _lines(content: Content) -> Iterator[str]:
    title = escape(content.title)
    yield '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    yield f"<title>{title}</title><style>{STYLE}</style></head><body>"
    yield f"<h1>{title}</h1>{_facts(content.facts)}"
    yield "<h2>Energies</h2>"
    yield _table(content.energies) if content.energies.rows else "<p>No run has an energy yet.</p>"
    if content.sums.rows:
        yield f"<h2>Sums</h2>{_table(content.sums)}"
    if content.notes:
        yield "<ul>" + "".join(f"<li>{escape(note)}</li>" for note in content.notes) + "</ul>"
    if content.observables.rows:
        yield f"<h2>Observables</h2>{_table(content.observables)}"
    numbers = count()
    yield from (_curve(curve, numbers) for curve in content.curves)
    if content.details.rows:
        yield f"<h2>More about the energies</h2>{_table(content.details)}"
    if content.explanations:
        yield "<h2>How the numbers came about</h2>"
        yield from (_folded(name, text) for name, text in content.explanations.items())
    for run in content.runs:
        yield from _run(run, numbers)
    yield "</body></html>\n"


def _run(run: RunFacts, numbers: Iterator[int]) -> Iterator[str]:
    yield f'<section id="{escape(run.run_id)}"><h2>{escape(run.run_id)}</h2>{_facts(run.facts)}'
    for picture in run.pictures:
        yield _figure(next(numbers), picture)
    yield from (_folded(title, text) for title, text in run.texts.items())
    yield "</section>"


def _table(table: PageTable) -> str:
    return html_table(table.head, table.rows, ' class="rows"') if table.rows else ""


def _curve(curve: CurveFacts, numbers: Iterator[int]) -> str:
    title = f"<h2>Curve of {escape(curve.name)}</h2>"
    return f"{title}{_facts(curve.facts)}{_figure(next(numbers), curve.picture)}"


def _facts(facts: Mapping[str, str]) -> str:
    known = {name: value for name, value in facts.items() if value}
    pairs = "".join(f"<dt>{escape(name)}</dt><dd>{escape(v)}</dd>" for name, v in known.items())
    return f"<dl>{pairs}</dl>"


def _folded(title: str, text: str) -> str:
    return f"<details><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>"


def _figure(number: int, picture: Picture) -> str:
    """A picture within the page: ids of its own, and no word about where SVG is defined."""
    svg = _METADATA.sub("", _PROLOGUE.sub("", picture.svg, count=1))
    svg = re.sub(r'\s(xmlns(:\w+)?)="[^"]*"', "", svg).replace("xlink:href", "href")
    svg = _NAMES.sub(rf"\g<1>p{number}-\g<2>", svg)
    return f"<figure>{svg}<figcaption>{escape(picture.caption)}</figcaption></figure>"
