"""The name of the `bake` command as the user typed it, for hints and help texts."""

import functools
import os
import re
import shutil
import sys
from pathlib import Path

_COMMAND = re.compile(r"(?<=`)bake(?= [a-zA-Z-])|(?<=^Usage: )bake\b|(?<=^  )bake(?= [a-z])", re.MULTILINE)


def as_typed(text: str) -> str:
    """Return a text in which commands such as `bake build` begin with the command that the user typed."""
    name = typed_command()
    return text if name == "bake" else _COMMAND.sub(lambda _: name, text)


@functools.cache
def typed_command() -> str:
    """Return `bake` if the PATH leads to the running program, else the path or module as it was typed."""
    typed = os.environ.get("BAKEHOUSE_COMMAND") or sys.argv[0]
    if Path(typed).parts[-2:] == ("bakehouse", "__main__.py") and not shutil.which("bake"):
        return "python -P -m bakehouse"
    if Path(typed).name != "bake":
        return "bake"
    program = shutil.which("bake")
    if "/" not in typed or (program and os.path.realpath(program) == os.path.realpath(typed)):
        return "bake"
    return typed
