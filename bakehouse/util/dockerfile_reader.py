"""Reader of Dockerfiles by BuildKit's rules: instructions with their line numbers.

The package `dockerfile-parse` does not read here-documents, and the package `dockerfile` is archived.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

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
    ends = re.compile(rf"(?:^|(?<=[^{re.escape(escape)}])){re.escape(escape)}[ \t]*$")
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
            cut = ends.search(line)
            joined += line[: cut.start()] if cut else line
            if not cut:
                break
        match = _INSTRUCTION.fullmatch(joined)
        if match is None:
            # BuildKit rejects such a line. Its text must not disappear.
            yield Instruction(first + 1, joined.split()[0].upper() if joined.split() else "", joined.strip())
            continue
        keyword, start = match["keyword"].upper(), match.start("text") if match["text"] else len(joined)
        flags: list[str] = []
        while keyword in _WITH_FLAGS and (flag := _FLAG.match(joined, start)):
            flags.append(flag["flag"])
            start = flag.end()
        start += len(joined[start:]) - len(joined[start:].lstrip())
        rest = joined[start:].rstrip()
        heredocs: list[str] = []
        bodies: list[str] = []
        marks = [_HEREDOC.fullmatch(word[0]) for word in WORD.finditer(rest)] if "<<" in rest else []
        for mark in marks if keyword in _WITH_HEREDOCS else ():
            if mark is None:
                continue
            content: list[str] = []
            start, stop = number, len(lines)
            while number < len(lines):
                line = lines[number].removesuffix("\r")
                line = line.lstrip("\t") if mark["strip"] else line
                number += 1
                if line == mark["name"]:
                    stop = number - 1
                    break
                content.append(line)
            heredocs.append("\n".join(content))
            bodies.append("".join(f"{line}\n" for line in lines[start:stop]))
        yield Instruction(first + 1, keyword, rest, tuple(flags), tuple(heredocs), tuple(bodies), escape)


def _is_comment(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _escape_character(lines: list[str]) -> str:
    """Return the character that continues a line; a directive above all instructions may change it."""
    for line in lines:
        match = _DIRECTIVE.fullmatch(line.strip())
        if match is None:
            break
        if match["name"].lower() == "escape" and match["value"] in ("\\", "`"):
            return match["value"]
    return "\\"
