"""Reader of pip's configuration on this machine: its files, then PIP_ variables."""

import configparser
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class PipConfig:
    """Settings of pip for downloads."""

    index_url: str = ""
    """Empty for pip's default."""
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    trusted_hosts: tuple[str, ...] = ()
    cert: str = ""
    proxy: str = ""
    timeout: str = ""
    keyring: bool = True
    """Get passwords from the `keyring` program."""


def read(environment: Mapping[str, str] = os.environ) -> PipConfig:
    """Read the settings of `pip install`. Later files override earlier ones, and variables override files."""
    values: dict[str, str] = {}
    for section in ("global", "install"):
        for path in _files(environment):
            values |= _section(path, section)
    for name, value in environment.items():
        if name.startswith("PIP_") and value:
            values[_key(name.removeprefix("PIP_"))] = value

    def words(*keys: str) -> tuple[str, ...]:
        return tuple(next((values[key] for key in keys if key in values), "").split())

    return PipConfig(
        index_url="".join(words("index-url", "pypi-url")[:1]),
        extra_index_urls=words("extra-index-url"),
        find_links=words("find-links"),
        no_index=values.get("no-index", "").lower() in ("1", "true", "yes", "on", "y", "t"),
        trusted_hosts=words("trusted-host"),
        cert=values.get("cert", ""),
        proxy=values.get("proxy", ""),
        timeout=values.get("timeout", values.get("default-timeout", "")),
        keyring=values.get("keyring-provider", "auto") != "disabled",
    )


def run_uv(command: Sequence[str]) -> None:
    """Replace this process by uv with pip's settings; uv reads none of them itself.

    Variables, because addresses can contain passwords, which other users see in arguments.
    """
    config = read()
    variables = {
        "UV_DEFAULT_INDEX": config.index_url,
        "UV_INDEX": " ".join(config.extra_index_urls),
        "UV_FIND_LINKS": ",".join(config.find_links),
        "UV_INSECURE_HOST": " ".join(config.trusted_hosts),
        "SSL_CERT_FILE": config.cert,
        "ALL_PROXY": config.proxy,
        "UV_HTTP_TIMEOUT": config.timeout,
        # The lock has the hash of each file, so any index may have it
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }
    given = {name: value for name, value in variables.items() if value and name not in os.environ}
    command = [*command, *(["--no-index"] if config.no_index else [])]
    os.execve(command[0], command, os.environ | given)


def _files(environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield pip's configuration files on a Unix system, in order of increasing precedence."""
    own = environment.get("PIP_CONFIG_FILE", "")
    if own == os.devnull:
        return
    for directory in reversed(environment.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":")):
        yield Path(directory, "pip", "pip.conf")
    yield Path("/etc/pip.conf")
    home = Path(environment.get("HOME") or Path.home())
    yield home / ".pip" / "pip.conf"
    yield Path(environment.get("XDG_CONFIG_HOME") or home / ".config", "pip", "pip.conf")
    yield Path(sys.prefix, "pip.conf")
    if own:
        yield Path(own)


def _section(path: Path, section: str) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(path.read_text())
    except (OSError, UnicodeDecodeError, configparser.Error):
        return {}
    return {_key(key): value for key, value in parser.items(section)} if parser.has_section(section) else {}


def _key(name: str) -> str:
    return name.lower().replace("_", "-")
