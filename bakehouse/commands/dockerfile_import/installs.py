"""Commands that install packages, read with the options of the installers' own parsers."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

from bakehouse.util.files import read_text

_TABLES = Path(__file__).with_name("installers.json")
_NAMES = Path(__file__).with_name("names.json")
_PREFIXES = ("sudo", "exec", "command", "time", "nice", "eatmydata", "env")
_NO_WEAK_DEPENDENCIES = ("--setopt", "install_weak_deps=false")
_PYTHON = re.compile(r"python[\d.]*")
_PIP = re.compile(r"pip[\d.]*")


@dataclass(frozen=True, slots=True)
class Install:
    """A call of an installer."""

    tool: str
    """`apt`, `dnf`, `pip` or `conda`."""
    verb: str
    packages: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    """Options that change what is installed, with their values."""
    unknown: str = ""
    """The first option that the installer's parser does not have."""

    @property
    def is_unneeded(self) -> bool:
        return self.verb in names("unneeded")[self.tool].split() and not self.unknown

    def values(self, *names: str) -> tuple[str, ...]:
        return tuple(value for name, value in self.options if name in names)


def without_prefixes(words: Sequence[str]) -> list[str]:
    """Return a command without `sudo`, `env` and similar programs, and without `conda run`."""
    rest = [*words]
    while rest and PurePosixPath(rest[0]).name in _PREFIXES and len(rest) > 1:
        rest = rest[1:]
        while rest and (re.fullmatch(r"-[EHnku]+|[A-Za-z_]\w*=.*", rest[0])):
            rest = rest[1:]
    if len(rest) > 2 and names("tools").get(PurePosixPath(rest[0]).name) == "conda" and rest[1] == "run":
        rest = rest[2:]
        while rest and rest[0].startswith("-"):
            rest = rest[2:] if rest[0] in ("-n", "-p", "--name", "--prefix") else rest[1:]
    return rest


def read_install(words: Sequence[str]) -> Install | None:
    """Return the call of an installer; None for other programs."""
    rest = without_prefixes(words)
    if not rest:
        return None
    program = PurePosixPath(rest[0]).name
    if _PYTHON.fullmatch(program) and rest[1:3] == ["-m", "pip"]:
        return _read("pip", "pip", rest[3:])
    if program == "uv" and rest[1:2] == ["pip"]:
        return _read("uv", "pip", rest[2:])
    if _PIP.fullmatch(program):
        return _read("pip", "pip", rest[1:])
    tool = names("tools").get(program)
    return _read(tool, tool, rest[1:]) if tool else None


def _read(table: str, tool: str, words: Sequence[str]) -> Install:
    flags, values, neutral = _options(table)
    verb, unknown = "", ""
    packages: list[str] = []
    options: list[tuple[str, str]] = []
    rest = iter(words)
    for word in rest:
        if word in names("unneeded")[tool].split() and not verb:
            return Install(tool, word)
        if word == "--":
            packages += rest
        elif not word.startswith("-") or word == "-":
            if verb:
                packages.append(word)
            verb = verb or word
        else:
            for name, value in _split(word, rest, flags, values):
                if name is None:
                    unknown = unknown or word
                elif name not in neutral and (name, value.lower()) != _NO_WEAK_DEPENDENCIES:
                    options.append((name, value))
    return Install(tool, verb, tuple(packages), tuple(options), unknown)


def _split(
    word: str, rest: Iterable[str], flags: frozenset[str], values: frozenset[str]
) -> list[tuple[str | None, str]]:
    """Return the options of a word with their values, as getopt and argparse read them."""
    name, equals, value = word.partition("=")
    if word.startswith("--"):
        if name in values:
            return [(name, value if equals else next(iter(rest), ""))]
        return [(name, value)] if name in flags else [(None, word)]
    if word in flags:
        return [(word, "")]
    found: list[tuple[str | None, str]] = []
    for position, letter in enumerate(word[1:], 1):
        option, tail = f"-{letter}", word[position + 1 :]
        if option in values:
            return [*found, (option, tail.removeprefix("=") if tail else next(iter(rest), ""))]
        if option not in flags and not (option == "-q" and tail[:1] == "="):
            return [*found, (None, word)]
        found.append((option, ""))
        if tail[:1] == "=":
            break
    return found


@cache
def names(table: str) -> dict[str, str]:
    """Return a table of names.json, which has facts with their sources."""
    content: dict[str, str] = json.loads(read_text(_NAMES))[table]["names"]
    return content


@cache
def _options(table: str) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    content = json.loads(read_text(_TABLES))[table]
    flags, values, neutral = (frozenset(content[name]) for name in ("flags", "values", "neutral"))
    return flags, values, neutral
