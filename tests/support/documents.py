"""The pages of the documentation, with their code and tables, and the files of the code."""

import re
from collections.abc import Iterator
from pathlib import Path

from bakehouse.catalog.project import HOME

_BLOCK = re.compile(r"^ *```(?P<language>\w*)\n(?P<code>.*?)^ *```", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    for match in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        yield match["language"], match["code"]


def table_rows(text: str) -> list[list[str]]:
    """Return the cells of all table rows, without headings."""
    lines = text.splitlines()
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line, following in zip(lines, [*lines[1:], ""], strict=True)
        if line.startswith("| ") and not following.startswith("|---")
    ]


def documents() -> list[Path]:
    """Return all Markdown pages except generated ones."""
    attributes = (HOME / ".gitattributes").read_text(encoding="utf-8")
    generated = re.findall(r"(?m)^/(\S+\.md) linguist-generated", attributes)
    pages = [
        *(HOME / name for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md")),
        *(HOME / "docs").rglob("*.md"),
        *(HOME / "examples").rglob("*.md"),
    ]
    return sorted(page for page in pages if page.exists() and str(page.relative_to(HOME)) not in generated)


def sources() -> Iterator[Path]:
    """Yield all code, recipes and templates, except the check itself, which names the phrases."""
    yield HOME / "tasks.py"
    code = (f"{name}/**/*.py" for name in ("bakehouse", "benchmarks", "examples", "tests"))
    check = HOME / "tests" / "docs"
    for pattern in (*code, "recipes/**/*", "templates/**/*"):
        for path in sorted(HOME.glob(pattern)):
            is_code = path.is_file() and "__pycache__" not in path.parts and check not in path.parents
            if is_code and is_text(path):
                yield path


def is_text(path: Path) -> bool:
    return b"\0" not in path.read_bytes()[:1000]
