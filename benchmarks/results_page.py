"""Page of results: each benchmark writes its own section, with `--record`."""

import hashlib
import re
from pathlib import Path

from bakehouse.util.files import write_whole

ROOT = Path(__file__).resolve().parent.parent
NAME = "docs/reference/benchmark-results.md"
PAGE = ROOT / NAME
HEAD = """\
# Benchmark results

[Benchmarks](../explanation/benchmarks.md) write this page: each replaces its section when it is run with
`--record`. With a load above 2, elapsed times are rough. A test fails if a benchmark has changed since its
section was written.
"""
_KEY = "Key of the benchmark: "


def key(name: str) -> str:
    """Return the key of a benchmark, which changes with its script."""
    return hashlib.sha256((ROOT / "benchmarks" / f"{name}.py").read_bytes()).hexdigest()[:8]


def sections(page: str) -> dict[str, str]:
    """Return the sections of the page by the name of the benchmark."""
    parts = page.split("\n## `")[1:]
    return {name: text.strip() for part in parts for name, _, text in [part.partition("`\n")]}


def recorded_keys(page: str) -> dict[str, str]:
    """Return the key of each benchmark at the time when its section was written."""
    texts = sections(page).items()
    return {name: text.rpartition(_KEY)[2].rstrip(".") for name, text in texts}


def record(name: str, text: str) -> None:
    """Replace the section of a benchmark."""
    before = sections(PAGE.read_text()) if PAGE.exists() else {}
    # The columns of tables are aligned for terminals.
    text = re.sub(r"-{3,}(?=\|)", "---", re.sub(r" {2,}(?=\|)", " ", text.strip()))
    all_sections = before | {name: f"{text}\n\n{_KEY}{key(name)}."}
    body = "".join(f"\n## `{name}`\n\n{text}\n" for name, text in sorted(all_sections.items()))
    write_whole(PAGE, HEAD + body)
