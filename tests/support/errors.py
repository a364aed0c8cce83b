"""Errors that a call raises, and their text as `bake` prints it."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import pytest

from bakehouse.cli.diagnostics import failure_text
from bakehouse.errors import BakehouseError

P = ParamSpec("P")
Error = TypeVar("Error", bound=BaseException)


def error_text(error: BakehouseError) -> str:
    return "\n".join(failure_text(diagnostic) for diagnostic in error.diagnostics)


def raised(kind: type[Error], call: Callable[P, object], *arguments: P.args, **keywords: P.kwargs) -> Error:
    """Return the error of this kind that the call raises."""
    with pytest.raises(kind) as caught:
        call(*arguments, **keywords)
    return caught.value


def refusal(
    kind: type[BakehouseError], call: Callable[P, object], *arguments: P.args, **keywords: P.kwargs
) -> str:
    """Return the text of the error of this kind that the call raises."""
    return error_text(raised(kind, call, *arguments, **keywords))
