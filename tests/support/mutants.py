"""Mutants of documents: their bytes, their tokens, and the tree that they mean."""

import copy
import json
import re
import tomllib
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Literal

import yaml

Form = Literal["json", "yaml", "toml", "text"]

_HUGE = "@huge@"
_DEEP = "@deep@"
_SCALARS: tuple[object, ...] = (
    *(None, True, False, 0, -1, 1, 1.5, 1e308, float("inf"), float("nan"), 10**30, -(10**30)),
    *("", " ", "0", "-1", "null", "\0", "\x1b[2J", "\ud800", "\u202e", "\u2028", "\ufeff", "\U0001f600", "ß"),
    *("x" * 20_000, "9" * 5_000, "../../../etc/passwd", "/", ".", "$(touch x)", "<script>", "a\nb", "a=b"),
    *("sha256:" + "0" * 64, "sha256:0", "0" * 64, "https://[::1", "http://a:99999/", "file:///etc/passwd"),
    *("2026-11-25", "2026-11-25T00:00:00", "2026-11-25T00:00:00+00:00", "9999-99-99T99:99:99Z"),
    *([], {}, [[]], [None], {"": None}, {"a": {"b": []}}, _HUGE, _DEEP),
)
_TOKENS = (
    *("", "0", "-1", "9" * 5_000, "1e999", "NaN", "null", "true", "[]", "{}", "[[", "]]", "}", "{", '"', "'"),
    *("\\", "\\u0000", "\\ud800", "\0", "\r", "\r\n", "\t", "\x0b", "\x0c", "\x1b[31m", "\u0085", "\u202e"),
    *("\u2028", "\u2029", "\ufeff", "é", "日本", "\U0001f600", " # "),
    *("..", "../..", "/", "#", ":", "::", "=", "==", ",", ";", "|", "||", "&", "*", "!", "%", "%00"),
    *("$x", "${x}", "`x`", "$(x)", "<a>", "&amp;", "--x"),
    *("x" * 20_000, "[" * 3_000, "{" * 3_000, '{"a":' * 3_000, "( " * 3_000, "a." * 3_000),
)
_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|[A-Za-z0-9_.+-]+|[^\sA-Za-z0-9_.+-]')
_LINES = b"\n" * 3_000
_LONGEST = 200_000
"""Characters of a mutant: repeated lines of repeated tokens would take longer to make than to read."""
_DEPTHS = (30, 900, 20_000)


def mutant(sample: bytes, form: Form, random: Random) -> bytes:
    """Return a document after one mutation or a few."""
    count = random.choice((1, 1, 1, 2, 3, 6))
    kind = random.random()
    if kind < 0.6 and form != "text":
        return _structural(sample, form, count, random)[: 5 * _LONGEST]
    if kind < 0.85:
        return _mutated_tokens(sample, count, random)
    return _mutated_bytes(sample, count, random)


def _structural(sample: bytes, form: Form, count: int, random: Random) -> bytes:
    text = sample.decode()
    tree: list[Any]
    match form:
        case "toml":
            tree = [tomllib.loads(text)]
        case "yaml":
            tree = [yaml.load(text, yaml.CBaseLoader)]
        case _:
            tree = [json.loads(text)]
    for _ in range(count):
        _change(tree, random)
    mutated = _toml(tree[0]) if form == "toml" else json.dumps(tree[0], ensure_ascii=random.random() < 0.7)
    if _DEEP in mutated:
        depth = random.choice(_DEPTHS)
        mutated = mutated.replace(json.dumps(_DEEP), "[" * depth + "]" * depth)
    mutated = mutated.replace(
        json.dumps(_HUGE), random.choice(("-", "")) + "9" * random.choice((19, 400, 5_000))
    )
    return mutated.encode(errors="surrogatepass")


def _change(tree: list[Any], random: Random) -> None:
    """Change one value, key or item."""
    nodes = list(_nodes(tree))
    holder, key = random.choice(nodes)
    match random.choice(("retype", "retype", "retype", "delete", "exchange", "rename", "repeat", "add")):
        case "retype":
            holder[key] = copy.deepcopy(random.choice(_SCALARS))
        case "delete" if holder is not tree:
            del holder[key]
        case "exchange":
            other, other_key = random.choice(nodes)
            holder[key] = copy.deepcopy(other[other_key])
        case "rename" if isinstance(holder, dict):
            holder[random.choice(("", "a", "\0", "\u202e", "x" * 300, "$(x)"))] = holder.pop(key)
        case "repeat" if isinstance(holder, list) and holder is not tree:
            holder.extend([holder[key]] * random.choice((1, 2, 300)))
        case "add" if isinstance(holder[key], dict):
            holder[key][random.choice(("a", "", "name", "\u2028"))] = copy.deepcopy(random.choice(_SCALARS))


def _nodes(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from _nodes(value[key])


def _toml(table: object) -> str:
    """Return a document with one line for each key; the values are inline."""
    if not isinstance(table, dict):
        return f"x = {_toml_value(table)}\n"
    lines = []
    for name, value in table.items():
        if isinstance(value, dict) and value:
            lines += [
                f"[{json.dumps(name)}.{json.dumps(key)}]\n{_toml_body(inner)}" for key, inner in value.items()
            ]
        else:
            lines.append(f"{json.dumps(name)} = {_toml_value(value)}\n")
    # A key without a table must come before the first table.
    return "".join(sorted(lines, key=lambda line: line.startswith("[")))


def _toml_body(table: object) -> str:
    if not isinstance(table, dict):
        return f"x = {_toml_value(table)}\n"
    return "".join(f"{json.dumps(key)} = {_toml_value(value)}\n" for key, value in table.items())


def _toml_value(value: object) -> str:
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{json.dumps(key)} = {_toml_value(each)}" for key, each in value.items()) + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    if isinstance(value, float):
        return str(value)
    return '""' if value is None else json.dumps(value)


def _mutated_tokens(sample: bytes, count: int, random: Random) -> bytes:
    """Replace, remove, repeat or exchange tokens or lines."""
    text = sample.decode()
    for _ in range(count):
        if random.random() < 0.3:
            text = _mutated_lines(text, random)
        elif tokens := list(_TOKEN.finditer(text)):
            token, other = random.choice(tokens), random.choice(tokens)
            put = random.choice((random.choice(_TOKENS), random.choice(_TOKENS), other[0], token[0] * 2))
            text = text[: token.start()] + put + text[token.end() :]
        text = text[:_LONGEST]
    return text.encode(errors="surrogatepass")


def _mutated_lines(text: str, random: Random) -> str:
    lines = text.splitlines(keepends=True) or [""]
    number, other = random.randrange(len(lines)), random.randrange(len(lines))
    match random.choice(("delete", "repeat", "swap", "join", "indent")):
        case "delete":
            del lines[number : number + random.choice((1, 1, 5))]
        case "repeat":
            lines[number:number] = lines[number : number + 3] * random.choice((1, 2, 200))
        case "swap":
            lines[number], lines[other] = lines[other], lines[number]
        case "join":
            lines[number] = lines[number].rstrip("\n")
        case "indent":
            lines[number] = random.choice((" ", "\t", "- ", "#", "\x0b")) + lines[number]
    return "".join(lines)


def _mutated_bytes(sample: bytes, count: int, random: Random) -> bytes:
    data = bytearray(sample)
    for _ in range(count):
        random.choice(_BYTE_MUTATIONS)(data, random)
    return bytes(data)


def _flip(data: bytearray, random: Random) -> None:
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _put(data: bytearray, random: Random) -> None:
    start = random.randrange(len(data) + 1)
    data[start : start + random.choice((0, 1, 8))] = random.choice(
        (
            random.randbytes(random.choice((1, 4, 64))),
            b"\0",
            b"\xff",
            b"\xed\xa0\x80",
            b"\xef\xbb\xbf",
            b"\n" * 3_000,
        )
    )


def _cut(data: bytearray, random: Random) -> None:
    start = random.randrange(len(data) + 1)
    del data[start : random.choice((start + 1, start + 16, len(data)))]


def _copy(data: bytearray, random: Random) -> None:
    start, to = random.randrange(len(data) + 1), random.randrange(len(data) + 1)
    data[to:to] = data[start : start + random.choice((2, 40, 400))] * random.choice((1, 1, 50))


_BYTE_MUTATIONS: tuple[Callable[[bytearray, Random], None], ...] = (_flip, _flip, _put, _put, _cut, _copy)
