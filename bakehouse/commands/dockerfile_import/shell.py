"""Parser that splits shell text into commands and words, with the positions of the words.

Bakehouse cannot use `bashlex`, which is under the GPL. `shlex` does not distinguish quoted operators.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import translate

_OPERATORS = ("&&", "||", ";;", ";", "|&", "|", "&", "(", ")", "\n")
_REDIRECT = re.compile(r"\d*(?:&>>|&>|>>|>&|>\||>|<<<|<<-|<<|<&|<>|<)(?:&?\d+-?(?=\s|$|[;|)])|-(?=\s|$))?")
_SPACE = " \t\r"
_OPENING = {"if": "fi", "for": "done", "while": "done", "until": "done", "select": "done", "case": "esac"}
_VARIABLE = re.compile(r"\$(?:\{(?P<braced>\w+)(?P<operation>[^}]*)\}|(?P<plain>[A-Za-z_]\w*))")
ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ShellWord:
    """A word as written, with its offset in the text."""

    raw: str
    start: int


@dataclass(slots=True)
class ShellCommand:
    """One simple command, or a compound command such as a loop with all its words."""

    words: list[ShellWord] = field(default_factory=list)
    redirections: list[ShellWord] = field(default_factory=list)
    """Operators and their targets."""
    before: str = ""
    """The operator before it."""
    after: str = ""
    depth: int = 0
    """Number of subshells around it."""
    is_compound: bool = False
    comments: list[ShellWord] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not (self.words or self.redirections)


def split_commands(text: str) -> Iterator[ShellCommand]:
    """Yield the commands of a shell text."""
    command = ShellCommand()
    depth, operator = 0, ""
    nested: list[str] = []
    target_follows = False
    for kind, raw, start in _tokens(text):
        word = ShellWord(raw, start)
        if kind == "operator" and not nested:
            if not command.is_empty:
                command.after = raw
                yield command
                operator = raw
            elif raw not in ("(", ")", "\n") or not operator:
                operator = raw
            depth += {"(": 1, ")": -1}.get(raw, 0)
            command, target_follows = ShellCommand(before=operator, depth=max(depth, 0)), False
        elif kind == "operator":
            continue
        elif kind == "redirection":
            command.redirections.append(word)
            target_follows = raw[-1] in "<>&|" or raw.endswith("<<-")
        elif target_follows:
            command.redirections.append(word)
            target_follows = False
        else:
            is_first = not command.words
            if nested and raw == nested[-1]:
                nested.pop()
            elif raw in _OPENING and (is_first or nested):
                nested.append(_OPENING[raw])
            elif is_first and (raw == "function" or raw.endswith("()")):
                nested.append("}")
            elif is_first and raw in ("{", "}", "!") and not nested:
                # Groups only change where the output goes.
                continue
            command.is_compound = command.is_compound or bool(nested)
            command.words.append(word)
    if not command.is_empty:
        yield command


def _tokens(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield kind, text and offset of operators, redirections and words. Comments are skipped."""
    position, length = 0, len(text)
    while position < length:
        character = text[position]
        if character in _SPACE or text.startswith("\\\n", position):
            position += 2 if character == "\\" else 1
            continue
        if character == "#":
            end = text.find("\n", position)
            position = length if end < 0 else end
            continue
        redirection = _REDIRECT.match(text, position)
        operator = next((operator for operator in _OPERATORS if text.startswith(operator, position)), "")
        if redirection and not (operator and not text.startswith("&>", position)):
            yield "redirection", redirection[0], position
            position = redirection.end()
        elif operator:
            yield "operator", operator, position
            position += len(operator)
        else:
            end = _end_of_word(text, position)
            yield "word", text[position:end], position
            position = end


def _end_of_word(text: str, position: int) -> int:
    length = len(text)
    while position < length:
        character = text[position]
        if character == "\\":
            position += 2
        elif character in "'\"`":
            position = _end_of_quote(text, position)
        elif text.startswith(("$(", "${", "<(", ">("), position):
            position = _end_of_bracket(text, position + 1)
        elif character in _SPACE or character in "\n;|&<>)":
            break
        elif character == "(":
            # As in `name()`, or a pattern
            position = _end_of_bracket(text, position)
        else:
            position += 1
    return min(position, length)


def _end_of_quote(text: str, position: int) -> int:
    quote = text[position]
    position += 1
    while position < len(text) and text[position] != quote:
        if text[position] == "\\" and quote != "'":
            position += 1
        elif quote == '"' and text.startswith("$(", position):
            position = _end_of_bracket(text, position + 1) - 1
        position += 1
    return position + 1


def _end_of_bracket(text: str, position: int) -> int:
    pair = {"(": ")", "{": "}"}[text[position]]
    opening, level = text[position], 0
    while position < len(text):
        character = text[position]
        if character == "\\":
            position += 1
        elif character in "'\"`" and opening == "(":
            position = _end_of_quote(text, position)
            continue
        elif character == opening:
            level += 1
        elif character == pair:
            level -= 1
            if not level:
                return position + 1
        position += 1
    return len(text)


def split_words(text: str) -> Iterator[ShellWord]:
    """Yield the words between spaces, as BuildKit splits the arguments of an instruction."""
    position = 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        start = position
        while position < len(text) and not text[position].isspace():
            if text[position] == "\\":
                position += 2
            elif text[position] in "'\"":
                position = _end_of_quote(text, position)
            elif text.startswith("${", position):
                position = _end_of_bracket(text, position + 1)
            else:
                position += 1
        position = min(position, len(text))
        yield ShellWord(text[start:position], start)


def unquoted(raw: str, variables: Mapping[str, str]) -> str:
    """Return a word without quotes, with the known variables replaced; others stay as they are."""
    parts: list[str] = []
    position, plain = 0, 0
    while position < len(raw):
        character = raw[position]
        if character == "\\":
            parts.append(expanded(raw[plain:position], variables) + raw[position + 1 : position + 2])
            position += 2
            plain = position
        elif character == "'":
            end = _end_of_quote(raw, position)
            parts += [expanded(raw[plain:position], variables), raw[position + 1 : end].removesuffix("'")]
            position = plain = end
        elif character == '"':
            end = _end_of_quote(raw, position)
            inner = raw[position + 1 : end].removesuffix('"')
            parts += [
                expanded(raw[plain:position], variables),
                re.sub(r'\\([\\"$`])', r"\1", expanded(inner, variables)),
            ]
            position = plain = end
        elif raw.startswith(("$(", "${"), position):
            position = _end_of_bracket(raw, position + 1)
        else:
            position += 1
    parts.append(expanded(raw[plain:], variables))
    return "".join(parts)


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """Replace the known variables of a text, also with the usual operations of shells and Dockerfiles."""

    def value(match: re.Match[str]) -> str:
        name, operation = match["braced"] or match["plain"], match["operation"] or ""
        known = variables.get(name)
        if operation.startswith((":-", "-")):
            default = operation.lstrip(":")[1:]
            return (known or expanded(default, variables)) if name in variables else match[0]
        if operation.startswith((":+", "+")):
            return expanded(operation.lstrip(":")[1:], variables) if known else match[0]
        if known is None:
            return match[0]
        return _operated(known, operation) if operation else known

    def escaped(part: str) -> str:
        return _VARIABLE.sub(value, part)

    return "".join(part if part == "\\$" else escaped(part) for part in re.split(r"(\\\$)", text))


def _operated(value: str, operation: str) -> str:
    """Apply an operation of bash, such as `//v` or `%.*`, to the value of a variable."""
    if match := re.fullmatch(r"(//?)([^/]*)(?:/(.*))?", operation):
        pattern = translate(match[2])[:-2]
        return re.sub(pattern, match[3] or "", value, count=0 if match[1] == "//" else 1)
    if match := re.fullmatch(r"(##?|%%?)(.*)", operation):
        lengths = range(len(value) + 1)
        pattern = translate(match[2])
        from_start = match[1].startswith("#")
        cuts = [
            length
            for length in lengths
            if re.fullmatch(pattern, value[:length] if from_start else value[len(value) - length :])
        ]
        if not cuts:
            return value
        cut = max(cuts) if len(match[1]) == 2 else min(cuts)
        return value[cut:] if from_start else value[: len(value) - cut]
    return value


def has_variables(text: str) -> bool:
    """Return whether a text contains variables or commands that only a shell can replace."""
    return "$" in text or "`" in text
