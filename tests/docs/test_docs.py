"""What the docs say is in the files they speak of."""

import re

from bakehouse.catalog.project import HOME

GUIDE = HOME / "docs/from-aws-guide.md"
IMAGE = "pytorch-1.10-cu113-py38-smp"


def test_every_step_of_the_guide_stands_in_the_dockerfile() -> None:
    dockerfile = (HOME / "images" / IMAGE / "Dockerfile").read_text()
    rows = [line.split("|") for line in GUIDE.read_text().splitlines() if line.startswith("| ")][1:]
    quoted = [fragment for row in rows for fragment in re.findall("`([^`]+)`", row[2])]

    assert len(quoted) == len(rows)
    assert [fragment for fragment in quoted if fragment not in dockerfile] == []


def test_files_that_the_docs_link_to_are_there() -> None:
    pages = [HOME / "README.md", *sorted((HOME / "docs").glob("*.md")), *(HOME / "examples").glob("*.md")]
    links = [(page, link) for page in pages for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text())]

    assert [f"{page.name}: {link}" for page, link in links if not (page.parent / link).exists()] == []
