"""Syntax trees of Python code."""

import ast
from threading import Lock

_PARSING = Lock()


def parse(source: str | bytes) -> ast.Module:
    """Return the syntax tree of code. Raises SyntaxError, ValueError or RecursionError.

    Python 3.11 raises SystemError if two threads create syntax trees at once (python/cpython#106905).
    """
    with _PARSING:
        return ast.parse(source)
