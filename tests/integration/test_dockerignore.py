"""The selection of `.dockerignore`, compared with that of the engine's own BuildKit."""

import json
import random
import subprocess
from pathlib import Path

import pytest

from bakehouse.catalog import source_tree
from bakehouse.catalog.source_tree import Limits

LIMITS = Limits(files=1000, file_bytes=1000, total_bytes=100_000, hint="")
FILES = (
    *("a.py", "b.ckpt", "README.md", "a b.txt", "#c", "!d", "é.py", ".hidden", "abc", "foo"),
    *("data/a.py", "data/b.ckpt", "data/keep/a.py", "data/keep/deep/b.ckpt", "data/x/foo/y.py"),
    *("src/a.py", "src/foo/a.py", "src/foo/bar/a.py", "src/afoo", "src/data/a.ckpt", "foobar/a.py"),
    *("a[1].py", "a1.py", "a-.py", "a^.py", "star*.py", "back\\slash", "data2", "src/.hidden/x"),
)
CASES = {
    "comments": "# a.py\n#c\n  # abc\n\na.py\n",
    "spaces and CR": "  a b.txt  \r\n\tb.ckpt\r\n",
    "byte order mark": "\ufeffa.py\nabc",
    "slashes": "/a.py\nsrc/\n./data/keep\n//abc\nfoobar//a.py\n",
    "parents": "src/../abc\n../a.py\n",
    "one level": "*.py\n*/foo\n",
    "all levels": "**/*.py\n**/foo\n",
    "a part of a name": "**foo\n",
    "below": "src/**\n",
    "between": "src/**/a.py\ndata/**/deep\n",
    "a prefix": "foo**\n",
    "exceptions": "*\n!src\nsrc/foo\n!src/foo/bar\n!README.md\n",
    "exceptions in turn": "data\n!data/keep\ndata/keep/deep\n!data/keep/deep/b.ckpt\n",
    "a pattern twice": "data\n!data/keep\ndata\n",
    "an exception before": "!a.py\n*.py\n",
    "an exception of a file in a directory": "data/\n! data/a.py\n",
    "one character": "a?.py\n?bc\n",
    "ranges": "a[0-9].py\n[a-b].*\n",
    "other characters": "a[^0-9].py\n",
    "escapes": "a\\[1\\].py\nstar\\*.py\n\\!d\n\\#c\n",
    "regular expressions": "a.p\n(abc)\nabc|foo\n.*\n$\n+\n",
    "everything": "**\n!**/*.md\n",
    "nothing": ".\n",
    "hidden": ".hidden\n**/.hidden\n",
}
WORDS = (
    "a",
    "b",
    "foo",
    "data",
    "src",
    "keep",
    "deep",
    "*",
    "**",
    "?",
    "a*",
    "*.py",
    "*.ckpt",
    "[a-f]*",
    "..",
)


def drawn(seed: int) -> str:
    """Return random patterns."""
    draw = random.Random(seed)
    lines = [
        draw.choice(("", "", "!"))
        + draw.choice(("", "", "/"))
        + "/".join(draw.choices(WORDS, k=draw.randint(1, 3)))
        for _ in range(draw.randint(1, 6))
    ]
    return "\n".join(lines)


CASES |= {f"random {seed}": drawn(seed) for seed in range(20)}


def context(directory: Path, patterns: str) -> Path:
    """Write the files and a `.dockerignore` to a directory."""
    for name in FILES:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(name)
    (directory / ".dockerignore").write_text(patterns, encoding="utf-8", newline="")
    return directory


@pytest.mark.parametrize("pattern", ["!", "!/", "a\\", "[a", "a[]", "[b-a]"])
def test_docker_rejects_the_same_patterns(pattern: str, tmp_path: Path) -> None:
    command = ["docker", "build", "--quiet", "--file", "-", str(context(tmp_path, f"{pattern}\n"))]
    build = subprocess.run(command, input=b"FROM scratch\nCOPY . /\n", capture_output=True, timeout=120)

    assert build.returncode
    assert [problem.message for problem in source_tree.read_tree(tmp_path, LIMITS).problems] == [
        f"`{pattern}` is not a valid pattern of `.dockerignore`"
    ]


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One build of all cases: a directory with the context of each and the files that Docker copied."""
    directory = tmp_path_factory.mktemp("contexts")
    targets = {
        str(number): {
            "context": str(context(directory / f"{number}", CASES[case])),
            "dockerfile-inline": "FROM scratch\nCOPY . /\n",
            "output": [f"type=local,dest={directory}/{number}-copied"],
        }
        for number, case in enumerate(CASES)
    }
    definition = {"group": {"default": {"targets": list(targets)}}, "target": targets}
    (directory / "bake.json").write_text(json.dumps(definition))
    command = ["docker", "buildx", "bake", "--file", str(directory / "bake.json")]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return directory


@pytest.mark.parametrize("number", range(len(CASES)), ids=[*CASES])
def test_the_same_files_stay_out_as_with_docker(number: int, copied: Path) -> None:
    out = copied / f"{number}-copied"
    expected = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}

    tree = source_tree.read_tree(copied / f"{number}", LIMITS)
    assert {file.name for file in tree.files} == expected
    assert tree.problems == ()
