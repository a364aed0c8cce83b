"""The text of errors, as `bake` prints it."""

from bakehouse.cli.diagnostics import failure_text
from bakehouse.errors import BakehouseError


def error_text(error: BakehouseError) -> str:
    return "\n".join(failure_text(diagnostic) for diagnostic in error.diagnostics)
