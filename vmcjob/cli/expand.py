"""Options that several commands share, declared once as the fields of a dataclass.

A command takes the dataclass as one parameter; Typer sees a parameter for each field.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, get_args, get_type_hints  # Any: options of all types

import typer

from vmcjob.resources import Flag


def expand_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for each field of its dataclass parameters."""
    parameters = inspect.signature(command, eval_str=True).parameters

    @wraps(command)
    def expanded(**given: Any) -> None:
        command(**{name: _gather(name, p.annotation, given) for name, p in parameters.items()})

    flat = [option for parameter in parameters.values() for option in _flatten(parameter)]
    expanded.__signature__ = inspect.Signature(flat)  # pyright: ignore[reportAttributeAccessIssue]
    expanded.__annotations__ = {option.name: option.annotation for option in flat}
    del expanded.__wrapped__  # or the annotations of the original would be read
    return expanded


def _flatten(parameter: inspect.Parameter) -> Iterator[inspect.Parameter]:
    """Replace a parameter whose type is a dataclass by one parameter for each field.

    All parameters are keyword-only. Defaults that are neither bool nor str become None.
    """
    if not is_dataclass(parameter.annotation):
        yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        return
    hints = get_type_hints(parameter.annotation, include_extras=True)
    for item in fields(parameter.annotation):
        hint = hints[item.name]
        if isinstance(flag := item.metadata.get("flag"), Flag):
            hint = _option(item, hint, flag)
        default = item.default if isinstance(item.default, bool | str) else None
        kind = inspect.Parameter.KEYWORD_ONLY
        yield from _flatten(inspect.Parameter(item.name, kind, default=default, annotation=hint))


def _option(item: Field[Any], hint: Any, flag: Flag) -> Any:  # types of any kind
    """The Typer option for a key of a request."""
    kind, *notes = get_args(hint)
    names = [f"--{item.name}", *([flag.short] if flag.short else [])]
    words = next(note for note in notes if isinstance(note, str))
    option = typer.Option(
        *names, metavar=flag.metavar, help=f"Batch system: {flag.words or words}."
    )
    return Annotated[list[str] | None if flag.is_list else kind, option]


def _gather(name: str, annotation: Any, given: Mapping[str, Any]) -> Any:  # a value of any type
    """The value of a parameter of the original command."""
    if not is_dataclass(annotation) or not isinstance(annotation, type):
        return given[name]
    hints, values = get_type_hints(annotation), {}
    for item in fields(annotation):
        value = _gather(item.name, hints[item.name], given)
        flag = item.metadata.get("flag")
        is_list = isinstance(flag, Flag) and flag.is_list
        values[item.name] = tuple(value or ()) if is_list else value
    return annotation(**values)
