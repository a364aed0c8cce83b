"""Reads a Dockerfile as BuildKit does, as far as tests need it: instructions, continued lines, heredocs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_HEREDOC = re.compile(r"""(?:^|\s)\d*<<(?P<chomp>-?)(?P<word>"[^"<]*"|'[^'<]*'|[^\s<"']+)""")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'')


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its word, the rest of its lines as one, the bodies of its heredocs."""

    word: str
    rest: str
    heredocs: tuple[str, ...] = ()


def instructions(text: str) -> list[Instruction]:
    """Return the instructions that BuildKit runs. An unterminated heredoc is a ValueError."""
    instructions = []
    lines = iter(text.split("\n"))
    for line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        whole = line
        while re.search(r"\\[ \t]*$", whole):
            whole = re.sub(r"\\[ \t]*$", "", whole)
            following = next(lines, "")
            while following.lstrip().startswith("#"):
                following = next(lines, "")
            whole += following
        word, _, rest = whole.strip().partition(" ")
        bodies = []
        if word.upper() in ("RUN", "COPY", "ADD"):
            for chomp, end in heredocs(rest):
                bodies.append(_body(lines, end, is_chomped=bool(chomp)))
        instructions.append(Instruction(word.upper(), rest.strip(), tuple(bodies)))
    return instructions


def heredocs(rest: str) -> list[tuple[str, str]]:
    """The words that end the heredocs of a line; what stands inside of other quotes is none."""
    bare = _QUOTED.sub(lambda match: match[0] if rest[: match.start()].endswith(("<<", "<<-")) else " ", rest)
    return [(match["chomp"], match["word"].strip("\"'")) for match in _HEREDOC.finditer(bare)]


def _body(lines: Iterator[str], end: str, *, is_chomped: bool) -> str:
    body: list[str] = []
    for line in lines:
        bare = line.rstrip("\r")
        if (bare.lstrip("\t") if is_chomped else bare) == end:
            return "".join(f"{line}\n" for line in body)
        body.append(line)
    message = f"the heredoc {end} does not end"
    raise ValueError(message)


def pairs(rest: str) -> dict[str, str]:
    """The names and values of ENV or LABEL; a quoted value that would be expanded is a ValueError."""
    return {
        name: _unquoted(value) if value.startswith('"') else value
        for name, value in re.findall(r'(\S+?)=("(?:[^"\\]|\\.)*"|\S*)', rest)
    }


def _unquoted(value: str) -> str:
    bare = re.sub(r'\\["$\\]', "", value)
    if "$" in bare:
        message = f"{value} would be expanded"
        raise ValueError(message)
    return re.sub(r'\\(["$\\])', r"\1", value[1:-1])


def stage(text: str, name: str) -> str:
    """One stage of a Dockerfile."""
    [stage] = [
        piece for piece in re.split(r"(?m)^(?=FROM )", text) if re.match(rf"FROM \S+ AS {name}\n", piece)
    ]
    return stage
