"""Coordinates that depend on swept variables: the arithmetic inside the braces of "{R/2}"."""

import ast
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from vmcjob.document import closest

_BINARY: dict[type[ast.AST], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_UNARY: dict[type[ast.AST], Callable[[float], float]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
FUNCTIONS: dict[str, Callable[[float], float]] = {
    name: getattr(math, name)
    for name in ("sin", "cos", "tan", "asin", "acos", "atan", "sqrt", "radians", "degrees")
}
"""Functions of one number; angles are in radians."""
_DIGITS = 15
"""Decimals of a function's value: mathematical libraries differ beyond, and run ids must not."""
_NODES = (ast.BinOp, ast.UnaryOp, ast.Name, ast.Load, ast.Call, *_BINARY, *_UNARY)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOKENS = re.compile(
    rf"(?:\s|[-+*/()]|{_NAME.pattern}"
    r"|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?(?![\w.]))*"
)
_PRODUCT = re.compile(r"[0-9.]\s*[A-Za-z_(]|\)\s*[A-Za-z_(]")
"""A product without its sign, like 2R or (R + 1)(R - 1)."""
_MAX_LENGTH = 200  # characters; deeper nesting would exhaust Python's parser


class ExpressionError(Exception):
    """The mistake in an expression, as the end of a sentence that begins with the expression."""


class Expression:
    """The arithmetic in a text like "{R/2}"; ExpressionError for any other text."""

    def __init__(self, text: str) -> None:
        inner = text.strip()[1:-1].strip()
        if len(inner) > _MAX_LENGTH:
            raise ExpressionError(f"is longer than {_MAX_LENGTH} characters")
        try:
            # Python's parser warns about odd tokens, so only plain tokens are passed to it.
            tree = ast.parse(inner if _TOKENS.fullmatch(inner) else "", mode="eval").body
        except SyntaxError:
            tree = None
        if tree is None or not all(_is_arithmetic(node) for node in ast.walk(tree)):
            advice = "; a product needs its *, as in 2 * R" if _PRODUCT.search(inner) else ""
            words = "is not made of numbers, variables, + - * /, ( ) and functions like cos only"
            raise ExpressionError(words + advice)
        called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
        _require_functions(node.id for node in names if id(node) in called)
        self._tree = tree
        self.variables = tuple(node.id for node in names if id(node) not in called)

    def evaluate(self, values: Mapping[str, float]) -> float:
        """The value; ExpressionError for an unknown variable or a result that is not finite."""
        for name in self.variables:
            if name not in values:
                near = closest(name, values)
                advice = f"did you mean '{near}'?" if near else "give it values in [sweep]"
                raise ExpressionError(f"has an unknown variable '{name}'; {advice}")
        try:
            result = _evaluate(self._tree, values)
        except ZeroDivisionError:
            raise ExpressionError("divides by zero") from None
        except ValueError:  # of `math`, as from the square root of -1
            raise ExpressionError("takes a function where that has no value") from None
        if not math.isfinite(result):
            raise ExpressionError("is too large")
        return result + 0.0  # -0.0, as from "{-R}" at R = 0, is the same position as 0.0


def is_expression(value: object) -> bool:
    """Whether a coordinate is an expression."""
    return isinstance(value, str) and value.strip()[:1] == "{" and value.strip()[-1:] == "}"


def names_in_braces(value: Any) -> Iterator[str]:
    """All possible names of variables in a value of any type, even if it is malformed."""
    if isinstance(value, dict | list):
        for element in value.values() if isinstance(value, dict) else value:
            yield from names_in_braces(element)
    elif isinstance(value, str) and "{" in value:
        yield from _NAME.findall(value)


def _require_functions(names: Iterable[str]) -> None:
    """ExpressionError for the name of a function that does not exist here."""
    for name in names:
        if name not in FUNCTIONS:
            known = ", ".join(FUNCTIONS)
            raise ExpressionError(f"has an unknown function '{name}'; known are {known}")


def _is_arithmetic(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and len(node.args) == 1 and not node.keywords
    if isinstance(node, ast.Constant):
        return type(node.value) in (int, float)  # True is an int in Python, but not a number here
    return isinstance(node, _NODES)


def _evaluate(node: ast.AST, values: Mapping[str, float]) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id=name):
            return values[name]
        case ast.UnaryOp(op=sign, operand=operand):
            return _UNARY[type(sign)](_evaluate(operand, values))
        case ast.BinOp(left=left, op=op, right=right):
            return _BINARY[type(op)](_evaluate(left, values), _evaluate(right, values))
        case ast.Call(func=ast.Name(id=name), args=[argument]):
            return round(FUNCTIONS[name](_evaluate(argument, values)), _DIGITS)
    raise TypeError(f"no arithmetic: {ast.dump(node)}")
