"""The commands of a page of the documentation, run in the page's order, with the output that it shows."""

import math
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_BLOCK = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<code>.*?)^ *```", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (?P<addition>add to )?(?P<path>[\w./-]*\.[a-z-]+|Dockerfile)\n")
_PROMPT = re.compile(r"^(?P<prompt>[a-z]*\$ +)(?P<command>(?:[^\n]*\\\n)*[^\n]*)\n", re.MULTILINE)
_SIZE = re.compile(r"\b(?P<number>\d+(\.\d+)?) (?P<unit>[kMG]B|bytes)\b")
_NO_SPACE = re.compile(r"^error: (not enough disk space .+)\n +needed +(.+)\n +free +(.+)$", re.MULTILINE)
_UNITS = {"bytes": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}
_VARYING = (
    (re.compile(r"sha256:[0-9a-f]{12,64}"), "sha256:…"),
    (re.compile(r"\d{4}-\d{2}-\d{2}(-\d{2}-\d{2}-\d{2}-\d{3})?"), "DATE"),
    (re.compile(r"-\d{8}-[0-9a-f]{8}\b"), "-TAG"),
    (re.compile(r"\b[0-9a-f]{12}(?=(-dirty)?$)"), "COMMIT"),
    (re.compile(r"\b127\.0\.0\.1:\d+"), "127.0.0.1:PORT"),
    (re.compile(r"\b\d+(\.\d+)?( s|:\d\d)\b"), "TIME"),
    (_SIZE, "SIZE"),
    (re.compile(r" +"), " "),
)
"""Parts of an output that differ from run to run, each with its replacement in comparisons."""


@dataclass(frozen=True)
class File:
    """A block that shows a file, which the reader writes."""

    path: str
    content: str
    is_addition: bool
    """The block shows lines that the reader adds to an existing file."""


@dataclass(frozen=True)
class Command:
    """A command of a page, and what the page shows of its output."""

    line: int
    """Line of the page, counted from 1."""
    text: str
    output: str
    """Empty where the page shows no output."""

    def __str__(self) -> str:
        return f"{self.line}: {' '.join(self.text.replace(chr(92), '').split())}"


def steps(page: Path) -> Iterator[File | Command]:
    """Yield the files and commands of a page in its order."""
    text = page.read_text(encoding="utf-8")
    for block in _BLOCK.finditer(text):
        code = re.sub(rf"(?m)^{block['indent']}", "", block["code"])
        if heading := _FILE.match(code):
            yield File(heading["path"], code[heading.end() :], bool(heading["addition"]))
        elif block["language"] == "console":
            first = text.count("\n", 0, block.start()) + 2
            prompts = list(_PROMPT.finditer(code))
            ends = [*(prompt.start() for prompt in prompts[1:]), len(code)]
            for prompt, end in zip(prompts, ends, strict=bool(prompts)):
                output = code[prompt.end() : end]
                yield Command(first + code.count("\n", 0, prompt.start()), prompt["command"], output)


def differences(shown: str, printed: str) -> list[str]:
    """Return the shown lines that are missing, in their order, in what was printed.

    Times, dates, digests, release tags, commits and ports may differ, and sizes by 5 %. A line of dots stands
    for any lines, and `…` within a line for any text. Without a line of dots, nothing may be printed between
    two shown lines.
    """
    printed_lines = printed.splitlines()
    comparable_lines = [_comparable(line) for line in printed_lines]
    position = 0
    missing = []
    may_skip = False
    for line in shown.splitlines():
        if line.strip() in {"…", "..."}:
            may_skip = True
            continue
        pattern = re.compile(".*".join(re.escape(part) for part in _comparable(line).split("…")))
        candidates = range(position, len(printed_lines)) if may_skip else range(position, position + 1)
        match = next(
            (
                n
                for n in candidates
                if n < len(printed_lines)
                and pattern.fullmatch(comparable_lines[n])
                and _have_near_sizes(line, printed_lines[n])
            ),
            None,
        )
        if match is None:
            missing.append(line)
        else:
            position = match + 1
            may_skip = False
    return missing


def _added(text: str, lines: str) -> str:
    """Add lines to the end of a text, and those of a TOML table that it has to this table."""
    for part in re.split(r"(?m)^(?=\[)", lines):
        header = part.partition("\n")[0] + "\n"
        if header.startswith("[") and header in text:
            text = text.replace(header, part, 1)
        else:
            text += part
    return text


def _comparable(line: str) -> str:
    for pattern, text in _VARYING:
        line = pattern.sub(text, line)
    return line.strip()


def _have_near_sizes(shown: str, printed: str) -> bool:
    pairs = zip(sizes(shown), sizes(printed), strict=False)
    return "…" in shown or all(math.isclose(*pair, rel_tol=0.05, abs_tol=1e5) for pair in pairs)


def sizes(line: str) -> list[float]:
    """Return the bytes of each size in a line."""
    return [float(size["number"]) * _UNITS[size["unit"]] for size in _SIZE.finditer(line)]


def missing_disk_space(errors: str) -> str:
    """Return why a build did not start on a disk that is too small; empty if it started."""
    match = _NO_SPACE.search(errors)
    return f"{match[1]}: needed {match[2]}, free {match[3]}" if match else ""


@dataclass
class Reader:
    """A reader who follows a page in a directory with the installed `bake`."""

    directory: Path
    programs: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    def write(self, file: File) -> None:
        path = self.directory / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        text = _added(path.read_text(encoding="utf-8"), file.content) if file.is_addition else file.content
        path.write_text(text, encoding="utf-8")

    def run(self, command: Command) -> subprocess.CompletedProcess[str]:
        """Run a command as a shell does. The next one starts where `cd` led, with the exported variables."""
        hidden = ("PYTHONPATH", "BAKEHOUSE_KEEP_REGISTRY", "BAKEHOUSE_COMMAND")
        inherited = {name: value for name, value in os.environ.items() if name not in hidden}
        path = f"{self.programs}{os.pathsep}{inherited['PATH']}"
        with tempfile.TemporaryFile() as end:
            program = f"trap '{{ pwd && env -0; }} >&{end.fileno()}' EXIT\n{command.text}"
            completed = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", program],
                cwd=self.directory,
                pass_fds=(end.fileno(),),
                env={**inherited, "NO_COLOR": "1", "PATH": path, **self.variables},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
            end.seek(0)
            directory, _, environment = end.read().decode().partition("\n")
        self.directory = Path(directory)
        self.variables = dict(item.split("=", 1) for item in environment.split("\0") if item)
        return completed
