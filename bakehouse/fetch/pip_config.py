"""Reads how pip is set up on this machine, as pip itself does: its files, then PIP_ variables."""

import configparser
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class PipConfig:
    """Settings of pip for downloads."""

    index_url: str = ""
    """Empty where it is pip's own default."""
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    trusted_hosts: tuple[str, ...] = ()
    cert: str = ""
    proxy: str = ""
    timeout: str = ""
    keyring: bool = True
    """pip may ask the `keyring` program."""


def read(environment: Mapping[str, str] = os.environ) -> PipConfig:
    """pip's settings for `pip install`, later files winning over earlier ones and variables over files."""
    found: dict[str, str] = {}
    for section in ("global", "install"):
        for path in _files(environment):
            found |= _section(path, section)
    for name, value in environment.items():
        if name.startswith("PIP_") and value:
            found[_key(name.removeprefix("PIP_"))] = value

    def words(*keys: str) -> tuple[str, ...]:
        return tuple(next((found[key] for key in keys if key in found), "").split())

    return PipConfig(
        index_url="".join(words("index-url", "pypi-url")[:1]),
        extra_index_urls=words("extra-index-url"),
        find_links=words("find-links"),
        no_index=found.get("no-index", "").lower() in ("1", "true", "yes", "on", "y", "t"),
        trusted_hosts=words("trusted-host"),
        cert=found.get("cert", ""),
        proxy=found.get("proxy", ""),
        timeout=found.get("timeout", found.get("default-timeout", "")),
        keyring=found.get("keyring-provider", "auto") != "disabled",
    )


def _files(environment: Mapping[str, str]) -> Iterator[Path]:
    """pip's files on a Unix system, weakest first."""
    named = environment.get("PIP_CONFIG_FILE", "")
    if named == os.devnull:
        return
    for folder in reversed(environment.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":")):
        yield Path(folder, "pip", "pip.conf")
    yield Path("/etc/pip.conf")
    home = Path(environment.get("HOME") or Path.home())
    yield home / ".pip" / "pip.conf"
    yield Path(environment.get("XDG_CONFIG_HOME") or home / ".config", "pip", "pip.conf")
    yield Path(sys.prefix, "pip.conf")
    if named:
        yield Path(named)


def _section(path: Path, section: str) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(path.read_text())
    except (OSError, UnicodeDecodeError, configparser.Error):
        return {}
    return {_key(key): value for key, value in parser.items(section)} if parser.has_section(section) else {}


def _key(name: str) -> str:
    return name.lower().replace("_", "-")
