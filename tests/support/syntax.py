"""Python code as statements: the tests of the structure read each module once."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


@cache
def tree(path: Path) -> ast.Module:
    """Return the parsed code of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and the statements in it, without their expressions, which are most of the nodes."""
    pending = [tree]
    while pending:
        node = pending.pop()
        yield node
        for block in _BLOCKS:
            # A lambda has an expression there.
            children = getattr(node, block, None)
            if isinstance(children, list):
                pending += children
