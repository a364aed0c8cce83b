"""Reader of Dockerfiles: instructions with their line numbers.

Of the parsers on the package index, `dockerfile-parse` does not read heredocs, and `dockerfile` is archived.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

_ESCAPE = re.compile(r"#\s*escape\s*=\s*(?P<character>[\\`])\s*", re.IGNORECASE)
_DIRECTIVE = re.compile(r"#\s*\w+\s*=.*")
_INSTRUCTION = re.compile(r"\s*(?P<keyword>[A-Za-z]+)(?:\s+(?P<text>.*))?", re.DOTALL)
_FLAG = re.compile(r"--[a-z][a-z-]*(?:=\S*)?(?:\s+|$)")
_HEREDOC = re.compile(r"<<(?P<strip>-?)(?P<quote>[\"']?)(?P<name>[A-Za-z_]\w*)(?P=quote)")
_WITH_HEREDOCS = ("RUN", "COPY", "ADD")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a Dockerfile."""

    line: int
    """Number of its first line."""
    keyword: str
    """In capitals, such as RUN."""
    text: str
    """Arguments without flags, on one line."""
    flags: tuple[str, ...] = ()
    heredocs: tuple[str, ...] = ()
    """Contents of here-documents."""

    @property
    def words(self) -> tuple[str, ...] | None:
        """Arguments in JSON form; None in shell form."""
        if self.text.startswith("["):
            try:
                words = json.loads(self.text)
            except ValueError:
                return None
            if isinstance(words, list) and all(isinstance(word, str) for word in words):
                return tuple(words)
        return None


def instructions(text: str) -> Iterator[Instruction]:
    """Yield the instructions of a Dockerfile. Continued lines are joined; comments are skipped."""
    lines = text.splitlines()
    escape = _escape_character(lines)
    number = 0
    while number < len(lines):
        first = number
        if not lines[number].strip() or lines[number].lstrip().startswith("#"):
            number += 1
            continue
        parts: list[str] = []
        while number < len(lines):
            line = lines[number].rstrip()
            number += 1
            if parts and (not line or line.lstrip().startswith("#")):
                # Empty lines and comments do not end an instruction.
                continue
            parts.append(line.removesuffix(escape).strip())
            if not line.endswith(escape):
                break
        match = _INSTRUCTION.fullmatch(" ".join(part for part in parts if part))
        if match is None:
            continue
        keyword, rest = match["keyword"].upper(), match["text"] or ""
        flags: list[str] = []
        while flag := _FLAG.match(rest):
            flags.append(flag[0].strip())
            rest = rest[flag.end() :]
        heredocs: list[str] = []
        for mark in _HEREDOC.finditer(rest) if keyword in _WITH_HEREDOCS else ():
            content: list[str] = []
            while number < len(lines):
                line = lines[number].lstrip("\t") if mark["strip"] else lines[number]
                number += 1
                if line == mark["name"]:
                    break
                content.append(line)
            heredocs.append("\n".join(content))
        yield Instruction(first + 1, keyword, rest.strip(), tuple(flags), tuple(heredocs))


def _escape_character(lines: list[str]) -> str:
    """Return the character that continues a line; a directive above all instructions may change it."""
    for line in lines:
        if match := _ESCAPE.fullmatch(line.strip()):
            return match["character"]
        if not _DIRECTIVE.fullmatch(line.strip()):
            break
    return "\\"
