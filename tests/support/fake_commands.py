"""Stand-ins for the programs outside: shell scripts that come first on PATH."""

import os
from pathlib import Path

import pytest


def put(folder: Path, monkeypatch: pytest.MonkeyPatch, **scripts: str) -> Path:
    """Shell scripts by name (`_` for `-`), before all else on PATH; gives their folder."""
    commands = folder / "commands"
    commands.mkdir(exist_ok=True)
    for name, text in scripts.items():
        path = commands / name.replace("_", "-")
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    if str(commands) not in os.environ["PATH"]:
        monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    return commands


def only(folder: Path, monkeypatch: pytest.MonkeyPatch, **scripts: str) -> None:
    """The same, and nothing else on PATH."""
    monkeypatch.setenv("PATH", str(put(folder, monkeypatch, **scripts)))
