"""Loads scripts of build steps, which have no file extension."""

from pathlib import Path
from types import ModuleType


def load_script(path: Path) -> ModuleType:
    """Execute a Python script as a module, so that its main function does not run; write no byte code."""
    module = ModuleType(path.name.replace("-", "_"))
    exec(compile(path.read_text(encoding="utf-8"), path, "exec"), module.__dict__)
    return module
