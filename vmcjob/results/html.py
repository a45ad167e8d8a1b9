"""Tables as HTML."""

from collections.abc import Sequence
from html import escape


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]], attributes: str = "") -> str:
    """A table of texts; columns in which no row has anything are left out.

    Every cell knows its title, for a screen that is too narrow for columns.
    """
    used = [n for n in range(len(head)) if any(row[n] for row in rows)]
    titles = "".join(f"<th>{escape(head[n])}</th>" for n in used)
    lines = "".join(
        "<tr>"
        + "".join(f'<td data-title="{escape(head[n])}">{escape(row[n])}</td>' for n in used)
        + "</tr>"
        for row in rows
    )
    return f"<table{attributes}><thead><tr>{titles}</tr></thead><tbody>{lines}</tbody></table>"
