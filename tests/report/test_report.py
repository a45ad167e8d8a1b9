"""report: one page with everything, that asks nobody for anything."""

import re
import shutil
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import Shell
from tests.runs import make_run
from tests.test_golden import CANCELLED, FINISHED, unpack
from vmcjob.results.report import Content, CurveFacts, PageTable, Picture, RunFacts, render

EMPTY = PageTable([], [])
VOID = {"meta", "br", "img", "link", "input", "hr"}


class Page(HTMLParser):
    """Checks that what is opened is closed; collects tags, ids, and what is referred to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.references: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("src", "href", "xlink:href", "srcset", "action", "data", "poster"):
                self.references.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def assert_self_contained(text: str) -> Page:
    """No tag that loads, no reference but to the page itself, no address in its style."""
    page = Page(text)
    assert not page.tags & {"script", "link", "iframe", "img", "object", "embed", "base", "form"}
    assert all(reference.startswith("#") for reference in page.references)
    assert {reference[1:] for reference in page.references} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert all(match.startswith("#") for match in re.findall(r"url\(\s*([^)]*)\)", text))
    assert "@import" not in text
    assert "default-src 'none'" in text
    return page


def make_content(**changes: Any) -> Content:
    """A page with nothing on it but the changes."""
    nothing: dict[str, Any] = {"energies": EMPTY, "sums": EMPTY, "curves": [], "details": EMPTY}
    nothing |= {"observables": EMPTY, "title": "", "facts": {}, "notes": []}
    return Content(**(nothing | {"explanations": {}, "runs": []} | changes))


def test_a_verdict_and_its_note_hide_behind_no_scrollbar() -> None:
    """Tables wrap, and a narrow screen has a line for each cell, with the title of its column."""
    table = PageTable(["name", "verdict", "note"], [["h2", "suspect", "a long sentence"]])
    text = render(make_content(energies=table))
    style, _, body = text.partition("</style>")
    assert "nowrap" not in style
    assert "overflow-x" not in style.partition("pre {")[0]
    assert "max-width: 45rem" in style
    assert "content: attr(data-title)" in style
    assert '<td data-title="note">a long sentence</td>' in body
    cells = re.findall(r"^th, td \{[^}]*overflow-wrap: ([a-z-]+)", style, re.MULTILINE)
    assert cells == ["break-word"]  # "anywhere" would break energies and verdicts for long notes


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """The helium atoms of an earlier release, one finished and one cancelled."""
    shell = unpack(tmp_path)
    for run in shell.runs.iterdir():
        if run.name not in (FINISHED, CANCELLED):
            shutil.rmtree(run)
    return shell


@pytest.mark.slow
def test_a_page_has_all_that_it_takes_to_judge_its_runs(shell: Shell) -> None:
    """Table, reasons, explanations, pictures, specs and provenance; of archived runs too."""
    assert shell.run("archive", FINISHED, "--remove").returncode == 0
    done = shell.run("report", "-o", "report.html")
    assert done.returncode == 3, done.stderr
    assert "wrote report.html" in done.stderr
    text = (shell.cwd / "report.html").read_text()
    page = assert_self_contained(text)
    assert "http" not in re.sub(r"http-equiv", "", text)
    shown = shell.run("aggregate").stdout.splitlines()[1].split()[1]
    assert f'<td data-title="energy">{shown}</td>' in text
    assert '<td data-title="verdict">' in text.partition("How the numbers came about")[0]
    for words in (
        f"left out: {CANCELLED}: cancelled: 8 of 100 training steps",
        "error from blocking",
        "versions.jax",
        'kind = "spring"',
        "evaluation step",
        "prefers-color-scheme: dark",
    ):
        assert words in unescape(text)
    assert text.count("<figure>") == 2
    assert {FINISHED, CANCELLED} <= set(page.ids)
    again = shell.run("report", "-o", "report.html")
    assert again.returncode == 3, again.stderr


def test_what_runs_say_cannot_become_part_of_the_page() -> None:
    """A spec or a path with markup is shown as it is."""
    evil = '<script src="https://example.org/x.js"></script>&"'
    picture = Picture(evil, '<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"></svg>')
    run = RunFacts("h2-1", {evil: evil}, {evil: evil}, [picture])
    table = PageTable([evil], [[evil]])
    curve = CurveFacts(evil, {evil: evil}, picture)
    tables = {"energies": table, "sums": table, "details": table, "observables": table}
    text = render(
        make_content(
            **tables,
            title=evil,
            facts={evil: evil},
            notes=[evil],
            curves=[curve],
            explanations={evil: evil},
            runs=[run],
        )
    )
    page = assert_self_contained(text)
    assert page.tags >= {"table", "svg", "details"}
    assert "w3.org" not in text


def test_ids_of_two_pictures_do_not_meet() -> None:
    """Every picture of matplotlib calls its parts alike."""
    svg = '<svg><defs><path id="a"/></defs><use xlink:href="#a"/><g clip-path="url(#a)"/></svg>'
    pictures = [Picture("", svg), Picture("", svg)]
    runs = [RunFacts("h2-0", {}, {}, pictures), RunFacts("h2-1", {}, {}, pictures[:1])]
    text = render(make_content(runs=runs))
    page = assert_self_contained(text)
    assert page.references == ["#p0-a", "#p1-a", "#p2-a"]
    assert "No run has an energy yet" in text


def test_columns_that_say_nothing_are_left_out() -> None:
    table = PageTable(["name", "off by", "energy"], [["h2", "", "-1.17"], ["he", "", ""]])
    text = render(make_content(energies=table))
    assert re.findall(r"<th>([^<]*)</th>", text) == ["name", "energy"]
    assert re.findall(r"<td [^>]*>([^<]*)</td>", text) == ["h2", "-1.17", "he", ""]
    assert "Observables" not in text


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("report.pdf", "the page is HTML; name it .html"),
        ("notes.html", "exists and is no page of HTML"),
        (f"runs/{FINISHED}/report.html", "belongs to runs"),
        ("nowhere/report.html", "cannot be written: there is no folder nowhere"),
    ],
)
def test_where_a_page_would_do_harm_none_is_written(shell: Shell, path: str, words: str) -> None:
    (shell.cwd / "notes.html").write_text("mine")
    done = shell.run("report", "-o", path)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert words in done.stderr
    assert (shell.cwd / "notes.html").read_text() == "mine"


def test_a_run_without_results_is_on_the_page(shell: Shell) -> None:
    """With what there is to say of it."""
    run = make_run(shell.runs, "h2-0000000002")
    done = shell.run("report", "h2-0000000002", "-o", "report.html")
    assert done.returncode == 3
    text = (shell.cwd / "report.html").read_text()
    assert_self_contained(text)
    assert f"left out: {run.path.name}: new: no results yet" in text
