"""Stubs for the programs outside: shell scripts that come first on PATH."""

import os
from pathlib import Path

import pytest


def put(directory: Path, monkeypatch: pytest.MonkeyPatch, **scripts: str) -> Path:
    """Shell scripts by name (`_` for `-`), before all else on PATH; gives their directory."""
    commands = directory / "commands"
    commands.mkdir(exist_ok=True)
    for name, text in scripts.items():
        path = commands / name.replace("_", "-")
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    if str(commands) not in os.environ["PATH"]:
        monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    return commands


def only(directory: Path, monkeypatch: pytest.MonkeyPatch, **scripts: str) -> None:
    """The same, and nothing else on PATH."""
    monkeypatch.setenv("PATH", str(put(directory, monkeypatch, **scripts)))
