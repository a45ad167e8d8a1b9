"""The command `schema`: JSON Schema of specs or profiles, for editors."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from vmcjob.cli.app import Command, app
from vmcjob.cli.screen import put_json

if TYPE_CHECKING:
    from vmcjob.document import Schema


class Documents(StrEnum):
    """The documents that have a schema."""

    SPEC = "spec"
    PROFILE = "profile"


Which = Annotated[
    Documents,
    typer.Argument(
        metavar="[spec|profile]", help="A job spec, or a site profile.", show_default=True
    ),
]


@app.command(cls=Command)
def schema(document: Which = Documents.SPEC) -> None:
    """Print the JSON Schema of specs or profiles, for editors.

    By it, editors complete and explain keys.

    Save it beside a spec, and begin the spec with the line "#:schema FILE", as `vmcjob init` does.
    """
    put_json(make_schema(document))


def make_schema(document: Documents) -> "Schema":
    """The JSON Schema of a document."""
    from vmcjob.document import json_schema
    from vmcjob.site import Site
    from vmcjob.spec import spec_schema

    if document is Documents.SPEC:
        return spec_schema()
    return json_schema("vmcjob site profile", Site)
