"""Find prose that breaks the style rules: forbidden phrases, long sentences and long commit subjects.

`vale` is not used. Its package downloads a program when it first runs, so it does not work offline. It also
does not read string literals, and these contain the messages.
"""

import ast
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.support.syntax import statements

HOME = Path(__file__).resolve().parents[2]
MOST_WORDS = 30
MOST_SUBJECT = 72


class Kind(Enum):
    HEADING = auto()
    PROSE = auto()
    """A paragraph, a list item or a table cell."""
    DOCSTRING = auto()
    CODE = auto()
    """A comment or a string literal."""


ALL = frozenset(Kind)
SENTENCES = frozenset({Kind.PROSE})
DOCSTRINGS = frozenset({Kind.DOCSTRING})


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of prose. Line breaks are those of the file, so that offsets give line numbers."""

    path: Path
    line: int
    content: str
    kind: Kind

    def line_at(self, offset: int) -> int:
        return self.line + self.content.count("\n", 0, offset)


@dataclass(frozen=True)
class Phrase:
    """A forbidden phrase. A space in `pattern` also matches a line break."""

    pattern: str
    hint: str
    kinds: frozenset[Kind] = ALL
    words: tuple[str, ...] = ()
    """Words of which the text of a file has one, in lower case; a search is cheaper than the pattern."""

    def may_be_in(self, lower: str) -> bool:
        return not self.words or any(word in lower for word in self.words)

    @cached_property
    def regex(self) -> re.Pattern[str]:
        return re.compile(self.pattern.replace(" ", r"\s+"), re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Violation:
    path: Path
    line: int
    problem: str
    hint: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(HOME)}:{self.line}: {self.problem}: {self.hint}"


_BE = "(?:is|are|was|were|be|been|being)"
_NOT_THERE = r"(?<!there\s)(?<!there\swill\s)(?<!there\smay\s)(?<!there\scan\s)"
_NAME_IT = "name the thing, for example `undefined variables`"
_WHO = "name the actor, or write `you`"

PHRASES = (
    # Archaic or unidiomatic negation and possession
    Phrase(
        r"\b(?:could|can't|cannot|can|to|be) be had\b|\bto be had\b",
        "write `available` or `missing`",
        words=("had",),
    ),
    Phrase(
        rf"{_NOT_THERE}\b{_BE} no (?!longer\b|more\b|less\b|later\b)\w+",
        "write `is not a valid …`",
    ),
    Phrase(r"\b(?:nothing|none) but\b|\bno other than\b", "write `only`", words=("nothing", "none", "other")),
    Phrase(r"\bwithout a word\b", "write `by default` or `silently`", words=("without",)),
    Phrase(r"\blest\b", "write `so that … not`", words=("lest",)),
    Phrase(r"\bbeside\b", "write `next to`, `with` or `in addition to`", words=("beside",)),
    # Unnamed actors
    Phrase(r"\bnobody\b", "negate with `not` and name the actor", words=("nobody",)),
    Phrase(r"\b(?:some|any)(?:body|one)\b", _WHO, words=("somebody", "someone", "anybody", "anyone")),
    Phrase(r"\bwho(?:m|se)?ever\b", _WHO, words=("whoever", "whomever", "whoseever")),
    Phrase(rf"\b{_BE} told\b", "write what Bakehouse reports", words=("told",)),
    Phrase(r"\b(?:was|were) seen to\b", "state the fact", words=("seen",)),
    # Relative clauses in place of names
    Phrase(rf"\bwhat (?:it|they) {_BE}\b", _NAME_IT, words=("what",)),
    Phrase(rf"\bwhat {_BE} (?:told|said|known|asked|wanted|meant|there|had)\b", _NAME_IT, words=("what",)),
    Phrase(
        r"\A\s*(?:What|Who|Whom|Whose|Where|One that|Those (?:that|who))\b(?! it (?:does|runs)\b)[^?]*\Z",
        _NAME_IT,
        SENTENCES,
    ),
    Phrase(
        r"\A\s*(?:What|Who|Whom|Whose|Whoever|Whether|That|Those|Where|One that)\b",
        "begin with a noun phrase or an imperative",
        DOCSTRINGS,
    ),
    Phrase(r"\A\s*(?:Says|Tells|Of)\b", "begin with a noun phrase or an imperative", DOCSTRINGS),
    Phrase(rf"\b{_BE} meant\b(?! to\b)", "write what it selects or does", words=("meant",)),
    # Metaphors
    Phrase(r"\bstands? in\b|\bstood in\b", "write `is in`", words=("stand", "stood")),
    Phrase(r"\bstand-?ins?\b", "write `stub`", words=("stand",)),
    Phrase(
        r"\b(?:lie|lies|lay) (?:in|on|at|below|there|under|beside)\b", "write `is in`", words=("lie", "lay")
    ),
    Phrase(r"\bhangs? on (?:it|(?:a|an|each|the) (?:digest|image))\b", "write `attach`", words=("hang",)),
    Phrase(
        r"\b(?:on|under) (?:its|their|the) way\b",
        "write `in progress` or `during the transfer`",
        words=("way",),
    ),
    Phrase(
        r"\bgoodbye\b|\bvouch(?:es|ed)?\b|\bbad days?\b",
        "state the technical fact",
        words=("goodbye", "vouch", "bad"),
    ),
    Phrase(r"\bdoors?\b", "write `adapter`, `wrapper` or `client`", words=("door",)),
    Phrase(r"\btime for it was over\b", "write `the deadline had passed`", words=("over",)),
    # Terms
    Phrase(r"\bfolders?\b", "write `directory`", words=("folder",)),
    Phrase(r"\bwrit(?:es?|ten|ing) down\b|\bwrote down\b", "write `record`", words=("down",)),
)

_STRING_OR_COMMENT = re.compile(
    r'''"""(?:[^\\]|\\.)*?"""|'{3}(?:[^\\]|\\.)*?'{3}|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|#[^\n]*''',
    re.DOTALL,
)
"""Python's own tokenizer takes ten times as long."""
_FENCE = re.compile(r"^ *(```|~~~)")
_BLOCK_START = re.compile(r"^ *(?:[-*+]|\d+\.) |^ *>|^#{1,6} ")
_SCRIPT_PROSE = re.compile(r"(?m:^|(?<=\s))#.*|\{#(?s:.*?)#\}|\"[^\"\n]* [^\"\n]*\"|'[^'\n]* [^'\n]*'")
_SENTENCE_END = re.compile(r"[.!?]\S{0,3}\s+(?=\S)")
_ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|etc|vs)\.\s+\Z")


def markdown_texts(path: Path) -> Iterator[Text]:
    """Split a Markdown file into headings, paragraphs, list items and table cells, without its code."""
    lines: list[str] = []
    is_code = False
    for line in path.read_text(encoding="utf-8").splitlines():
        is_fence = bool(_FENCE.match(line))
        is_code ^= is_fence
        lines.append("" if is_code or is_fence else line)
    start = 0
    while start < len(lines):
        end = start + 1
        if lines[start].lstrip().startswith("|"):
            yield from _cells(path, start + 1, lines[start])
        elif lines[start].strip():
            while (
                end < len(lines)
                and not lines[start].startswith("#")
                and lines[end].strip()
                and not _BLOCK_START.match(lines[end])
                and not lines[end].lstrip().startswith("|")
            ):
                end += 1
            kind = Kind.HEADING if lines[start].startswith("#") else Kind.PROSE
            yield Text(path, start + 1, _plain("\n".join(lines[start:end])), kind)
        start = end


def _cells(path: Path, line: int, row: str) -> Iterator[Text]:
    for cell in re.split(r"(?<!\\)\|", _plain(row))[1:-1]:
        if cell.strip(" :-"):
            yield Text(path, line, cell, Kind.PROSE)


def _plain(text: str) -> str:
    """Remove Markdown syntax: inline code becomes one word, and a link becomes its text."""
    text = _without_code(text)
    text = re.sub(r"<!--.*?-->", lambda match: "\n" * match[0].count("\n"), text, flags=re.DOTALL)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"^( *)(?:[-*+]|\d+\.|>|#{1,6}) ", r"\1", text)


def _without_code(text: str) -> str:
    return re.sub(r"(`+)[^`]+\1", lambda match: "X" + "\n" * match[0].count("\n"), text)


def python_texts(path: Path) -> Iterator[Text]:
    """Return the docstrings, comments and string literals of a Python file, except strings without spaces."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    documentation = {
        id(node.value)
        for node in statements(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node, text in _strings(tree):
        if " " in text:
            kind = Kind.DOCSTRING if id(node) in documentation else Kind.CODE
            yield Text(path, node.lineno, _without_code(text), kind)
    yield from _comments(path, source)


def _strings(tree: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    pending: list[Any] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                yield node, node.value
        elif isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "X" for part in node.values]
            yield node, "".join(map(str, parts))
            pending += [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
        elif isinstance(node, ast.AST) and not isinstance(node, (ast.Name, ast.expr_context)):
            for name in node._fields:
                value = getattr(node, name, None)
                if isinstance(value, list):
                    pending += value
                elif isinstance(value, ast.AST):
                    pending.append(value)


def _comments(path: Path, source: str) -> Iterator[Text]:
    """Return each block of comments as one text."""
    block: list[str] = []
    last, line, position = 0, 1, 0
    for match in _STRING_OR_COMMENT.finditer(source):
        if not match[0].startswith("#"):
            continue
        line += source.count("\n", position, match.start())
        position = match.start()
        if block and line != last + 1:
            yield Text(path, last - len(block) + 1, _without_code("\n".join(block)), Kind.CODE)
            block = []
        block.append(match[0].lstrip("#! "))
        last = line
    if block:
        yield Text(path, last - len(block) + 1, _without_code("\n".join(block)), Kind.CODE)


def plain_texts(path: Path) -> Iterator[Text]:
    """Return a YAML file, or the comments and quoted strings of a script or template, as one text."""
    text = path.read_text(encoding="utf-8")
    if path.suffix not in (".yaml", ".yml"):
        end, pieces = 0, []
        for match in _SCRIPT_PROSE.finditer(text):
            pieces += ["\n" * text.count("\n", end, match.start()), match[0]]
            end = match.end()
        text = "".join(pieces)
    yield Text(path, 1, _without_code(re.sub(r"(?m)^([ \t]*)(?:#|\{#)", r"\1 ", text)), Kind.CODE)


def texts(path: Path) -> Iterator[Text]:
    if path.suffix == ".md":
        return markdown_texts(path)
    return python_texts(path) if _is_python(path) else plain_texts(path)


def _is_python(path: Path) -> bool:
    with path.open(encoding="utf-8") as file:
        return path.suffix == ".py" or re.match("#!.*python", file.readline()) is not None


def sentences(text: Text) -> Iterator[tuple[int, str]]:
    """Return the sentences of a text with their lines."""
    start = 0
    for end in [*(match.end() for match in _SENTENCE_END.finditer(text.content)), len(text.content)]:
        sentence = text.content[start:end]
        if _ABBREVIATION.search(sentence) and end < len(text.content):
            continue
        if sentence.strip():
            indent = len(sentence) - len(sentence.lstrip())
            yield text.line_at(start + indent), sentence
        start = end


def find_phrases(path: Path) -> list[Violation]:
    """Return the forbidden phrases of a file in the order of its lines."""
    violations = []
    lower = path.read_text(encoding="utf-8").lower()
    phrases = [phrase for phrase in PHRASES if phrase.may_be_in(lower)]
    for text in texts(path):
        for phrase in phrases:
            if text.kind not in phrase.kinds:
                continue
            pieces = sentences(text) if phrase.kinds == SENTENCES else [(text.line, text.content)]
            for line, piece in pieces:
                for match in phrase.regex.finditer(piece):
                    at = line + piece.count("\n", 0, match.start())
                    violations.append(Violation(path, at, _quoted(match[0]), phrase.hint))
    return sorted(violations, key=lambda violation: violation.line)


def find_long_sentences(path: Path) -> list[Violation]:
    """Return the sentences of a Markdown file that have too many words."""
    violations = []
    for text in markdown_texts(path):
        for line, sentence in sentences(text):
            words = [word for word in sentence.split() if re.search(r"\w", word)]
            if len(words) > MOST_WORDS:
                hint = f"split it: {MOST_WORDS} words are the maximum, 20 the aim"
                start = " ".join(sentence.split()[:6])
                violations.append(Violation(path, line, f"`{start} …` has {len(words)} words", hint))
    return violations


def _quoted(match: str) -> str:
    words = match.split()
    return f"`{' '.join(words[:6])}{' …' if len(words) > 6 else ''}`"


def find_long_subjects(directory: Path, since: str) -> list[str]:
    """Return the commit subjects after `since` that are too long, with their commits."""
    log = git(directory, "log", "--no-merges", "--format=%h %s", f"{since}..HEAD")
    return [line for line in log.splitlines() if len(line.partition(" ")[2]) > MOST_SUBJECT]


def last_release(directory: Path) -> str:
    """Return the latest tag `v*`. Without one, return the commit that added this check."""
    tags = git(directory, "tag", "--list", "v*", "--merged", "HEAD", "--sort=-creatordate").split()
    if tags:
        return tags[0]
    name = str(Path(__file__).with_name("test_prose.py").relative_to(HOME))
    added = git(directory, "log", "--diff-filter=A", "--format=%H", "--", name).split()
    return added[-1] if added else "HEAD"


def git(directory: Path, *words: str) -> str:
    return subprocess.run(
        ["git", "-C", str(directory), *words], check=True, capture_output=True, text=True, timeout=60
    ).stdout
