"""The docs match the files, commands and keys that they describe."""

import re
from pathlib import Path

from bakehouse.catalog.project import HOME
from tests.support.documents import table_rows
from tests.support.programs import bake
from tests.support.requirements_locks import locked_heading

GUIDE = HOME / "docs/how-to/extend-aws-images.md"
IMAGE = "pytorch-1.10-cu113-py38-smp"
TUTORIAL = HOME / "docs/tutorial/first-image.md"
PAGES = [
    *sorted(HOME.glob("*.md")),
    HOME / "images/README.md",
    *sorted((HOME / "docs").rglob("*.md")),
    *sorted((HOME / "examples").rglob("*.md")),
]


def anchors(page: Path) -> set[str]:
    headings = re.findall("^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_step_of_awss_guide_is_in_the_dockerfile() -> None:
    folder = HOME / "images" / IMAGE
    paths = [folder / "Dockerfile", *(path for path in (folder / "inputs").rglob("*") if path.is_file())]
    text = "".join(path.read_text() for path in paths)
    rows = table_rows(GUIDE.read_text())
    quotes = [quote for row in rows for quote in re.findall("`([^`]+)`", row[1])]

    assert len(quotes) == len(rows)
    assert [quote for quote in quotes if quote not in text] == []


def test_each_published_breakage_is_rebuilt_by_a_test() -> None:
    page = (HOME / "docs/how-to/check-gpu-images.md").read_text()
    rows = table_rows(page.partition("## What they find of published breakages")[2])
    tests = [HOME / "tests/builder/test_libraries.py", HOME / "tests/recipes/test_recipes.py"]
    sources = {url for path in tests for url in re.findall(r'"""(https://\S+?)\.[ "]', path.read_text())}
    checks = (HOME / "bakehouse/probes/libraries.py").read_text()

    assert len(rows) == 10
    assert [link for link, _ in rows if re.findall(r"\((https://[^)]+)\)", link)[0] not in sources] == []
    assert [found for _, found in rows].count("not found") == 1
    names = {name for _, found in rows for name in re.findall("`([a-z_]+)`", found)}
    assert {name for name in names if f"def check_{name}()" not in checks} == set()


def test_links_lead_to_files_and_headings() -> None:
    broken = []
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text()):
            path = page.parent / target if target else page
            if not path.exists() or (anchor and anchor not in anchors(path)):
                broken.append(f"{page.relative_to(HOME)}: {target}#{anchor}")

    assert broken == []


def test_the_project_of_the_tutorial_resolves_as_shown(tmp_path: Path) -> None:
    text = TUTORIAL.read_text()
    write_files(tmp_path, text)
    outputs = dict(re.findall(r"\$ ([^\n]*)\n((?:[^$`\n][^\n]*\n)+)", text))
    printed(tmp_path, "init churn")
    settings = (tmp_path / "pyproject.toml").read_text()
    recipe = (tmp_path / "training-images/images/churn.yaml").read_text()
    assert settings == outputs["cat pyproject.toml"]
    shown = outputs["grep '^[a-z ]' training-images/images/churn.yaml"]
    assert [line for line in recipe.splitlines() if re.match("[a-z ]", line)] == shown.splitlines()
    heading = locked_heading(tmp_path / "requirements.txt", "churn")
    lock = f"{heading}\npandas==3.1.1 --hash=sha256:{'0' * 64}  # pandas-3.1.1-py3-none-any.whl 1\n"
    (tmp_path / "requirements.txt.lock").write_text(lock)

    assert printed(tmp_path, "resolve churn") == outputs["bake resolve churn"]
    assert printed(tmp_path, "render") == outputs["bake render"]
    assert printed(tmp_path, "render --check")
    assert "pytorch 2.13.0" in printed(tmp_path, "explain churn pytorch")
    assert "fits with python 3.12" in printed(tmp_path, "resolve churn --assume python=3.12")


def write_files(directory: Path, text: str) -> None:
    """Write the code blocks of a page that start with a path."""
    for path, content in re.findall(r"```\w*\n# (\S+)\n(.*?)```", text, re.S):
        file = directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)


def printed(directory: Path, words: str) -> str:
    result = bake(*words.split(), cwd=directory)
    assert result.returncode == 0, result.stderr
    return result.stdout
