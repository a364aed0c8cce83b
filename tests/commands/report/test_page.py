"""The page as one file: no requests, hostile texts, and the same bytes for the same content."""

import hashlib
import os
import re
import subprocess
import sys
from base64 import b64encode
from pathlib import Path

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.cli import main
from bakehouse.commands.report.page import render
from tests.commands.report.hostile_fleet import HOSTILE, hostile
from tests.commands.report.sites import FAILED, Html, Site, build
from tests.support.built_images import DATE
from tests.support.trees import Tree


def test_the_grid_has_a_row_for_each_image(site: Site) -> None:
    html = Html(render(site.fleet("small")))

    assert ("a", {"href": "#image/small"}) in html.elements
    assert ("td", {"class": "unknown"}) not in html.elements
    assert "Not recorded for any image: Built, CPU tests, GPU tests, Scanned, Signed, Released." in html.text


def test_the_page_starts_with_what_needs_attention(site: Site) -> None:
    build(site, FAILED)
    text = " ".join(Html(render(site.fleet())).text.split())

    assert "1 image needs attention small: CPU tests: 1 of 1 failed, see bake smoke small" in text
    assert f"Fleet report of {site.tree.root.name} newest record: {DATE[:10]}" in text


def test_the_meaning_of_a_rehearsal_is_above_the_grid(site: Site) -> None:
    assert (
        "rehearsed all build steps ran, with stubs for unavailable files: the real packages are not tested"
    ) in " ".join(Html(render(site.fleet("small"))).text.replace("rehearsed", "rehearsed ").split())


def test_hostile_texts_stay_texts(site: Site) -> None:
    fleet = site.fleet("small")
    plain, attacked = Html(render(hostile(fleet, "text"))), Html(render(hostile(fleet)))

    assert [name for name, _ in attacked.elements] == [name for name, _ in plain.elements]
    assert attacked.raw["script"][1] == plain.raw["script"][1]
    assert attacked.data["images"][0]["summary"] == HOSTILE
    assert not re.search(r"[<>&]", attacked.raw["script"][0])
    assert not any(name.startswith("on") for _, attributes in attacked.elements for name in attributes)


def test_a_hostile_recipe_stays_text(site: Site) -> None:
    text = "</script><b onclick=x>&"
    site.tree.image(f'summary: "{text}"\nbase: {{debian: "12"}}\n')
    html = Html(render(site.fleet("small")))

    assert html.data["images"][0]["summary"] == text
    assert "b" not in [name for name, _ in html.elements]


def test_scripts_write_texts_only() -> None:
    script = (HOME / "templates/report/page.js").read_text()

    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|Function\(", script)


def test_only_the_style_and_the_script_of_the_page_may_run(site: Site) -> None:
    html = Html(render(site.fleet("small")))
    [policy] = [
        attributes["content"] or ""
        for name, attributes in html.elements
        if name == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))

    def source(text: str) -> str:
        return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    assert rules == {
        "default-src": "'none'",
        "style-src": source(html.raw["style"][0]),
        "script-src": source(html.raw["script"][1]),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    assert len(html.raw["style"]) == 1
    assert len(html.raw["script"]) == 2


def test_the_page_requests_nothing(site: Site) -> None:
    html = Html(render(site.fleet("small")))

    for name, attributes in html.elements:
        assert not {"src", "srcset", "style", "action"} & {*attributes}, name
        assert name not in ("iframe", "img", "object", "embed", "base")
        assert name != "link" or attributes == {"rel": "icon", "href": "data:,"}
    assert not re.search(
        r"url\(|@import|fetch\(|XMLHttpRequest|import\(", "".join(map("".join, html.raw.values()))
    )


def test_the_page_has_the_changes_of_a_release(site: Site) -> None:
    site.publish({"bytes": 10, "date": "2026-11-18"}, {"bytes": 20, "date": "2026-11-19"})
    [change] = Html(render(site.fleet("small"))).data["images"][0]["releases"][0]["changes"]

    assert change == {"name": "", "before": "10 bytes", "after": "20 bytes", "kind": "size"}


def test_the_same_content_gives_the_same_bytes(site: Site, tmp_path: Path) -> None:
    site.publish({}, {"candidate": True})
    site.tree.write("pyproject.toml", '[tool.bakehouse]\nrecipes = ["."]\n')
    command = ["-c", "from bakehouse.cli.main import main; main()", "report", "small", "--to", "there"]
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": str(HOME)}
    subprocess.run([sys.executable, "-P", *command], cwd=site.tree.root, env=environment, check=True)

    assert main.run(["report", "small", "--to", "here"]) == 0
    assert (tmp_path / "here/index.html").read_bytes() == (tmp_path / "there/index.html").read_bytes()


def test_the_task_writes_the_page_and_prints_its_path(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    tree.write("pyproject.toml", '[tool.bakehouse]\nrecipes = ["."]\n')

    assert main.run(["report"]) == 0

    assert capsys.readouterr().out == "build/report/index.html\n"
    assert [image["name"] for image in Html(Path("build/report/index.html").read_bytes()).data["images"]] == [
        "small"
    ]
