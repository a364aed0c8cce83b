"""Reader of the apt configuration of this machine: sources and network settings. It does not run apt."""

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from debian.deb822 import Deb822

APT = Path("/etc/apt")
"""Directory of the configuration; missing on systems without apt."""
_CARRIED = re.compile(
    r"Acquire::(?:https?::(?:Proxy|Timeout|CaInfo|Verify-Peer|Verify-Host)(?:::\S+)?|"
    r"Retries|Check-Valid-Until|Check-Date|ForceIPv[46])",
    re.IGNORECASE,
)
_TOKEN = re.compile(
    r'(?P<comment>//[^\n]*|/\*.*?\*/|(?m:^[ \t]*)#(?!clear|include)[^\n]*)|"(?P<text>[^"]*)"|'
    r'(?P<mark>[{};])|(?P<word>(?:(?!//|/\*)[^\s"{};])+)',
    re.DOTALL,
)
_LINE = re.compile(r"deb\s+(?:\[[^\]]*\]\s+)?(?P<url>\S+)\s+(?P<suite>\S+)(?P<components>(?:\s+\S+)*)\s*")
_LIST = "mirror+file"


@dataclass(frozen=True, slots=True)
class ConfiguredSource:
    """A suite of an archive, as the configuration names it."""

    url: str
    suite: str
    components: tuple[str, ...]


def entries(directory: Path | None = None) -> tuple[ConfiguredSource, ...]:
    """Return the sources of binary packages, in apt's order; empty on a machine without apt."""
    directory = directory or APT
    files = [directory / "sources.list", *sorted(directory.glob("sources.list.d/*"))]
    found = dict.fromkeys(entry for path in files for entry in _entries(path))
    return tuple(found)


def settings(directory: Path | None = None, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return apt's network settings: proxies, certificates, retries, date checks."""
    directory = directory or APT
    named = environment.get("APT_CONFIG", "")
    parts = (path for path in sorted(directory.glob("apt.conf.d/*")) if path.suffix in ("", ".conf"))
    files = (*([Path(named)] if named else []), *parts, directory / "apt.conf")
    values: dict[str, tuple[str, str]] = {}
    for path in files:
        for key, value in read_settings(_text(path)):
            if value is None:
                values = {name: item for name, item in values.items() if not _is_below(name, key.lower())}
            elif _CARRIED.fullmatch(key):
                # The names of settings are case-insensitive
                values[key.lower()] = (values.get(key.lower(), (key,))[0], value)
    return dict(values.values())


def read_settings(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield the settings of a file in the format of apt.conf(5); None for a key that it clears."""
    scopes: list[str] = []
    words: list[str] = []
    for token in _TOKEN.finditer(text):
        mark = token["mark"]
        if token["comment"] is not None:
            continue
        if mark is None:
            words.append(token["word"] if token["text"] is None else token["text"])
        elif mark == "{":
            scopes.append(words[0] if words else "")
            words = []
        elif mark == "}":
            scopes = scopes[:-1]
            words = []
        else:
            match words:
                case ["#clear", *keys]:
                    yield from (("::".join((*scopes, key)), None) for key in keys)
                case [key, value]:
                    yield "::".join((*scopes, key)), value
            words = []


def written(values: Mapping[str, str]) -> str:
    """Format settings as a configuration file of apt."""
    return "".join(f'{key} "{value}";\n' for key, value in values.items())


def logins() -> tuple[Path, ...]:
    """Return the files of apt's logins, in the format of apt_auth.conf(5)."""
    return (APT / "auth.conf", *sorted(APT.glob("auth.conf.d/*.conf")))


def _entries(path: Path) -> Iterator[ConfiguredSource]:
    if path.suffix == ".list":
        found = _one_line(_text(path))
    elif path.suffix == ".sources":
        found = _stanzas(_text(path))
    else:
        return
    for entry in found:
        # A suite that ends in a slash is a directory, not one of Debian
        if not entry.suite.endswith("/"):
            yield from (ConfiguredSource(url, entry.suite, entry.components) for url in _urls(entry.url))


def _one_line(text: str) -> Iterator[ConfiguredSource]:
    for line in text.splitlines():
        if match := _LINE.fullmatch(line.partition("#")[0].strip()):
            yield ConfiguredSource(match["url"], match["suite"], tuple(match["components"].split()))


def _stanzas(text: str) -> Iterator[ConfiguredSource]:
    for stanza in Deb822.iter_paragraphs(text.splitlines(), use_apt_pkg=False):
        is_enabled = stanza.get("Enabled", "yes").strip().lower() not in ("no", "false", "0", "off")
        if is_enabled and "deb" in stanza.get("Types", "").split():
            components = tuple(stanza.get("Components", "").split())
            for url in stanza.get("URIs", "").split():
                yield from (
                    ConfiguredSource(url, suite, components) for suite in stanza.get("Suites", "").split()
                )


def _urls(url: str) -> Iterator[str]:
    """Yield the URL of a source, or the URLs of a mirror list, which cloud images use."""
    address = urlsplit(url)
    if address.scheme != _LIST:
        yield url
        return
    for line in _text(Path(url2pathname(address.path))).splitlines():
        if words := shlex.split(line, comments=True):
            yield words[0]


def _is_below(name: str, key: str) -> bool:
    return name == key or name.startswith(f"{key.removesuffix('::')}::")


def _text(path: Path) -> str:
    """Return the text of a file; empty without one that can be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
