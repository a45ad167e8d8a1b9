"""Directives that write reference pages from the code: keys, commands and functions.

Each directive writes Markdown and has it parsed in its place, so that headings get entries in the
table of contents and can be searched.
"""

import inspect
from collections.abc import Iterator
from importlib import import_module

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from typer.main import get_command
from typer.testing import CliRunner

from vmcjob.cli.app import app
from vmcjob.cli.keys import KeyRow, site_keys, spec_keys


class Generated(SphinxDirective):
    """A directive whose content is Markdown lines made by `lines`."""

    optional_arguments = 1

    def lines(self) -> Iterator[str]:
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        text = "\n".join(self.lines())
        return self.parse_text_to_nodes(text, allow_section_headings=True)


class SpecKeys(Generated):
    """A section for each table of a spec, and for each `kind` of a table."""

    def lines(self) -> Iterator[str]:
        yield from key_tables(spec_keys())


class SiteKeys(Generated):
    """A section for each table of a site profile."""

    def lines(self) -> Iterator[str]:
        yield from key_tables(site_keys())


class Commands(Generated):
    """A section for each command, with the words of its `--help`."""

    def lines(self) -> Iterator[str]:
        for path in command_paths(get_command(app), ()):
            shown = CliRunner().invoke(
                app, [*path, "--help"], prog_name="vmcjob", env={"COLUMNS": "80", "NO_COLOR": "1"}
            )
            yield from (f"## `{' '.join(('vmcjob', *path))}`", "")
            yield from ("```text", shown.output.rstrip(), "```", "")


class Api(Generated):
    """A section for each public name of a module, with its signature and docstring."""

    def lines(self) -> Iterator[str]:
        module = import_module(self.arguments[0])
        for name in sorted(module.__all__, key=str.lower):
            public = getattr(module, name)
            if inspect.isclass(public) or inspect.isfunction(public):
                yield from (f"### `{name}`", "", "```python", signature(name, public), "```", "")
                yield from ("```text", inspect.getdoc(public) or "", "```", "")


def command_paths(command: object, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The words of every command, groups before the commands in them."""
    for name, sub in getattr(command, "commands", {}).items():
        if not sub.hidden:
            yield (*path, name)
            yield from command_paths(sub, (*path, name))


def key_tables(rows: Iterator[KeyRow]) -> Iterator[str]:
    """A Markdown table for each table of a document."""
    tables: dict[tuple[str, str], list[KeyRow]] = {}
    for row in rows:
        tables.setdefault((table_of(row.key), row.kind), []).append(row)
    for (table, kind), group in tables.items():
        suffix = f', kind = "{kind}"' if kind else ""
        yield from (f"## `[{table}]`{suffix}" if table else "## Outside of tables", "")
        yield from ("| key | default | meaning | accepted |", "|---|---|---|---|")
        for row in group:
            default = f"`{row.default}`" if row.default else ""
            key = row.key.removeprefix(f"{table}.")
            yield f"| `{key}` | {default} | {cell(row.meaning)} | {cell(row.expected)} |"
        yield ""


def table_of(key: str) -> str:
    return key.rpartition(".")[0]


def cell(text: str) -> str:
    """A text as it stands in a cell of a Markdown table."""
    for mark in ("\\", "|", "*", "_", "<", "[", "$", "@"):
        text = text.replace(mark, f"\\{mark}")
    return text


def signature(name: str, public: object) -> str:
    """A class or function with its parameters, one line each where they are long."""
    text = f"{name}{inspect.signature(public)}"
    return text if len(text) <= 88 else text.replace(", ", ",\n    ")


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("vmcjob-spec", SpecKeys)
    app.add_directive("vmcjob-site", SiteKeys)
    app.add_directive("vmcjob-commands", Commands)
    app.add_directive("vmcjob-api", Api)
    return {"parallel_read_safe": True}
