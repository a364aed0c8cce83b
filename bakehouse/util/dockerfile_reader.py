"""Reader of Dockerfiles by BuildKit's rules: instructions with their line numbers.

The package `dockerfile-parse` does not read here-documents, and the package `dockerfile` is archived.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

_DIRECTIVE = re.compile(r"#\s*(?P<name>[A-Za-z][A-Za-z0-9]*)\s*=\s*(?P<value>.*?)\s*")
_INSTRUCTION = re.compile(r"\s*(?P<keyword>[A-Za-z]+)(?P<text>\s.*)?", re.DOTALL)
_FLAG = re.compile(r"\s*(?P<flag>--[a-zA-Z][a-zA-Z-]*(?:=(?:\"[^\"]*\"|'[^']*'|\S)*)?)(?=\s|$)")
WORD = re.compile(r"(?:\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"|[^\s\"'\\]|[\"'\\])+", re.DOTALL)
"""A word of an instruction, with its quotes."""
_HEREDOC = re.compile(r"\d*<<(?P<strip>-?)(?P<quote>[\"']?)(?P<name>[^\s<\"']+)(?P=quote)")
_WITH_FLAGS = ("ADD", "COPY", "FROM", "HEALTHCHECK", "RUN")
_WITH_HEREDOCS = ("RUN", "COPY", "ADD")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a Dockerfile."""

    line: int
    """Number of its first line."""
    keyword: str
    """In capitals, such as RUN."""
    text: str
    """Arguments without flags; continued lines are joined as they are."""
    flags: tuple[str, ...] = ()
    heredocs: tuple[str, ...] = ()
    """Contents of here-documents."""
    bodies: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """The same byte for byte, with all line ends."""
    escape: str = field(default="\\", compare=False, repr=False)
    """The character that `# escape` selects."""

    @property
    def words(self) -> tuple[str, ...] | None:
        """Arguments in JSON form; None in shell form."""
        if self.text.startswith("["):
            try:
                words = json.loads(self.text)
            except (ValueError, RecursionError):
                return None
            if isinstance(words, list) and all(isinstance(word, str) for word in words):
                return tuple(words)
        return None


def instructions(text: str) -> Iterator[Instruction]:
    """Yield the instructions of a Dockerfile. Continued lines are joined; comments are skipped."""
    # Only these end a line: here-documents may contain others, such as form feeds
    lines = text.removeprefix("\ufeff").removesuffix("\n").split("\n")
    escape = _escape_character(lines)
    number = 0
    while number < len(lines):
        first = number
        if _is_comment(lines[number]):
            number += 1
            continue
        joined = ""
        while number < len(lines):
            line = lines[number].removesuffix("\r")
            number += 1
            if joined and _is_comment(line):
                # Empty lines and comments do not end an instruction.
                continue
            cut = line.rstrip(" \t")
            if not cut.endswith(escape) or cut.endswith(escape * 2):
                joined += line
                break
            joined += cut[:-1]
        keyword, flags, rest = split(joined)
        heredocs, bodies = list[str](), list[str]()
        has_heredocs = "<<" in rest and keyword in _WITH_HEREDOCS
        for mark in filter(None, map(_HEREDOC.fullmatch, WORD.findall(rest))) if has_heredocs else ():
            content, start, stop = list[str](), number, len(lines)
            while number < len(lines):
                line = lines[number].removesuffix("\r").lstrip("\t" if mark["strip"] else "")
                number += 1
                if line == mark["name"]:
                    stop = number - 1
                    break
                content.append(line)
            heredocs.append("\n".join(content))
            bodies.append("".join(f"{line}\n" for line in lines[start:stop]))
        yield Instruction(first + 1, keyword, rest, flags, tuple(heredocs), tuple(bodies), escape)


@lru_cache(8192)
def split(line: str) -> tuple[str, tuple[str, ...], str]:
    """Return the keyword, the flags and the other arguments of a line, cached because images share most."""
    match = _INSTRUCTION.fullmatch(line)
    if match is None:
        # BuildKit rejects such a line. Its text must not disappear
        return "".join(line.split()[:1]).upper(), (), line.strip()
    keyword, start = match["keyword"].upper(), match.end("keyword")
    flags: list[str] = []
    while keyword in _WITH_FLAGS and (flag := _FLAG.match(line, start)):
        flags.append(flag["flag"])
        start = flag.end()
    return keyword, tuple(flags), line[start:].strip()


def _is_comment(line: str) -> bool:
    return line.lstrip()[:1] in ("", "#")


def _escape_character(lines: list[str]) -> str:
    """Return the character that continues a line; a directive above all instructions may change it."""
    for line in lines:
        match = _DIRECTIVE.fullmatch(line.strip())
        if match is None:
            break
        if match["name"].lower() == "escape" and match["value"] in ("\\", "`"):
            return match["value"]
    return "\\"
