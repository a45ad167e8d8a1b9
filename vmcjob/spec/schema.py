"""The JSON Schema of a spec."""

from vmcjob.document import Schema, json_schema
from vmcjob.spec.model import JobSpec
from vmcjob.spec.sweep import Variations

GEOMETRIES = ("atoms", "xyz", "molecule")


def spec_schema() -> Schema:
    """The schema of specs; a sweep may give the geometry that `[system]` does not."""
    schema = json_schema("vmcjob spec", JobSpec, Variations)
    schema["required"].remove("system")
    del schema["properties"]["system"]["required"]
    has_atoms = {"anyOf": [{"required": [name]} for name in GEOMETRIES]}
    whole = {"required": ["system"], "properties": {"system": has_atoms}}
    return schema | {"anyOf": [whole, {"required": ["sweep"]}]}
