"""The page in a headless Chromium; skipped on machines without one."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from bakehouse.builder.build_log import Build, record_build
from bakehouse.builder.timings import StepTime
from bakehouse.builder.verify import Outcome
from bakehouse.catalog.project import HOME
from bakehouse.cluster.smoke_report import CheckResult
from bakehouse.commands.report.commits import ChangedImage, Comparison
from bakehouse.commands.report.page import render
from bakehouse.evidence import step_layers
from bakehouse.ledger.releases import ReleasedComponent
from bakehouse.plan.diff import PackageChanges
from bakehouse.util.value_change import ValueChange
from tests.commands.report.hostile_fleet import hostile
from tests.commands.report.sites import CONFIG, FAILED, Site, build, lock
from tests.support.browser import Browser, find_program, open_browser
from tests.support.build_logs import BEGAN, TIME
from tests.support.known_layers import made

IMAGES = 300
PHONE = 390
CHANGE = ChangedImage(
    "small",
    components=(ValueChange("python", "3.10", "3.11"), ValueChange("sshd", None, "9.2")),
    packages=(PackageChanges("Python", (ValueChange("mine", "1.0", "1"),), 400, 500),),
    recipe=("+ environment A x",),
    tests=None,
    bytes_before=60,
    bytes_after=65,
)
SINCE = Comparison("v1.2", "c0ffee" * 6 + "c0de", (CHANGE,), ("twin",), ("older",), 7)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = find_program()
    if program is None:
        pytest.skip("no Chromium on this machine: `apt-get install chromium`")
    with open_browser(program, tmp_path_factory.mktemp("browser") / "profile") as opened:
        yield opened


@pytest.fixture
def page(site: Site) -> Path:
    """The page of two images, of which one has records of everything."""
    lock(site, mine=500)
    build(site, CheckResult("train_success", Outcome.PASSED, 4.0), FAILED)
    project = site.workspace.project
    step_layers.record(project.state, made(site.planned), project.state)
    newer = (ReleasedComponent("pytorch", "2.8.0", "cpu"),)
    older = (ReleasedComponent("pytorch", "2.7.1", "cpu"), ReleasedComponent("sshd", "9.2", ""))
    site.publish(
        {"parts": older, "date": "2026-11-18"}, {"config": CONFIG, "parts": newer, "date": "2026-11-22"}
    )
    steps = (
        StepTime("torch", "2/2", "RUN pip install", ("small",), 30.0, False, (), TIME),
        StepTime("python", "2/2", "RUN make", ("small",), 0.0, True, (), TIME),
    )
    record_build(Build(BEGAN, "farm", steps), project.state)
    site.tree.image(site.tree.root.joinpath("images/small.yaml").read_text() + "packages: [less]\n", "twin")
    return write(site, render(replace(site.fleet(), project="churn", since=SINCE)))


def write(site: Site, content: bytes) -> Path:
    path = site.tree.root / "report.html"
    path.write_bytes(content)
    return path


def faults(browser: Browser) -> list[str]:
    """Return errors of scripts, violations of the policy, and requests other than for the page."""
    found = []
    for event in browser.events:
        method, parameters = event.get("method", ""), event.get("params", {})
        if method in ("Log.entryAdded", "Runtime.exceptionThrown"):
            found.append(str(parameters))
        if method == "Network.requestWillBeSent":
            url = parameters["request"]["url"]
            if not url.startswith(("file:", "about:", "data:")):
                found.append(url)
    return found


SMALL = "a[href='#image/small']"
MAP_TABLE = ".treemap ~ details summary"
SHOWN = "document.querySelector('main').innerText"


def click(browser: Browser, *selectors: str) -> str:
    """Click elements one after another, and return the text that is shown then."""
    for selector in selectors:
        browser.wait(f"document.querySelector({selector!r}) !== null")
        browser.evaluate(f"document.querySelector({selector!r}).click()")
        browser.evaluate("new Promise((done) => setTimeout(done, 50))")
    return str(browser.evaluate(SHOWN))


ANSWERS = {
    "how far each image came": ((), "rehearsed; not pinned"),
    "version of a component": ((SMALL,), "2.9.0"),
    "reason for a version": (
        (SMALL, "[aria-label='Versions and why'] tr:nth-child(2) summary"),
        "the image requests python 3.11 images/small.yaml:3",
    ),
    "reason against newer versions": (
        (SMALL, "[aria-label='Versions and why'] tr:nth-child(2) summary"),
        "not 3.12: outside the requested range",
    ),
    "failed test": ((SMALL,), "it hangs; on algo-2 rank 3"),
    "instance types": ((SMALL,), "ml.c5.2xlarge"),
    "code of a job": ((SMALL,), "from sagemaker.pytorch import PyTorch"),
    "releases": ((SMALL,), "2026-11-22"),
    "change of a release": ((SMALL,), "2026-11-22 pytorch 2.7.1 (cpu) → 2.8.0 (cpu) sshd 9.2 removed"),
    "releases of the fleet": (("nav a[href='#timeline']",), "2 releases on 2 days, newest first"),
    "downloads": ((SMALL,), "Python packages of the recipe 500 bytes"),
    "shared layers": ((SMALL,), "1 image"),
    "changes since a commit": (
        ("nav a[href='#changes']",),
        "small python 3.10 → 3.11 sshd 9.2 added 1 Python package, +100 bytes to download + environment A x",
    ),
    "tests and size since a commit": (
        ("nav a[href='#changes']",),
        "not recorded for both 60 bytes → 65 bytes (+5 bytes)",
    ),
    "packages that changed": (("nav a[href='#changes']", "#detail td summary"), "mine 1.0 1"),
    "images since a commit": (
        ("nav a[href='#changes']",),
        "From v1.2, commit c0ffeec0ffee, to the present state 1 changed image, 1 added, 1 removed, "
        "7 with the same recipe and components",
    ),
    "changes of one image": ((SMALL,), "Changes since v1.2 Components python 3.10 → 3.11"),
    "time of a build": (("nav a[href='#builds']",), "Builder: farm; 30 s; 1 of 2 steps from the cache"),
}


@pytest.mark.parametrize(("clicks", "text"), ANSWERS.values(), ids=[*ANSWERS])
def test_answers_are_two_clicks_away(
    browser: Browser, page: Path, clicks: tuple[str, ...], text: str
) -> None:
    browser.open(page)

    assert len(clicks) <= 2
    assert text in " ".join(click(browser, *clicks).split())
    assert faults(browser) == []


def test_two_images_are_compared(browser: Browser, page: Path) -> None:
    browser.open(page)
    click(browser, SMALL)
    browser.evaluate(
        "(() => { const select = document.querySelectorAll('.fields select')[1];"
        "select.value = [...select.options].find((option) => option.text.startsWith('small, release')).value;"
        "select.dispatchEvent(new Event('change')); })()"
    )

    text = " ".join(str(browser.evaluate(SHOWN)).split())
    assert "torch 2.9.0 cpu-py311 none" in text
    assert "pytorch none 2.8.0 cpu" in text


def test_the_timeline_starts_with_the_newest_release(browser: Browser, page: Path) -> None:
    browser.open(page, "#timeline")
    rows = browser.evaluate("[...document.querySelectorAll('#detail tbody tr')].map((row) => row.innerText)")

    assert [" ".join(row.split()) for row in rows] == [
        "2026-11-22 small pytorch 2.7.1 (cpu) → 2.8.0 (cpu) sshd 9.2 removed sha256:000000000000",
        "2026-11-18 small first release sha256:000000000000",
    ]
    click(browser, "#detail td a")
    assert browser.evaluate("document.querySelector('#detail h2').textContent") == "small"


VIEWS = {"fleet-report": "", "size-map": "#image/small", "fleet-changes": "#changes"}


@pytest.mark.parametrize(("name", "fragment"), VIEWS.items())
def test_pictures_of_the_guide(
    browser: Browser, page: Path, request: pytest.FixtureRequest, name: str, fragment: str
) -> None:
    picture = HOME / f"docs/how-to/images/{name}.png"
    assert f"images/{name}.png" in (HOME / "docs/how-to/read-the-fleet-report.md").read_text()
    browser.open(page, fragment)
    browser.evaluate("document.querySelector('.treemap')?.previousElementSibling.scrollIntoView()")
    if request.config.getoption("--update-snapshots"):
        browser.screenshot(picture)
    assert picture.exists()


def test_unknown_views_show_the_images(browser: Browser, page: Path) -> None:
    browser.open(page, "#constructor")

    assert browser.evaluate("document.querySelector('#fleet').hidden") is False
    assert faults(browser) == []


def test_filters_hide_rows_and_say_how_many_are_left(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.evaluate(
        "(() => { const input = document.querySelector('[name=name]'); input.value = 'TWI';"
        "input.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )

    rows = "[...document.querySelectorAll('#fleet tbody tr')].filter((row) => !row.hidden).length"
    assert browser.evaluate(rows) == 1
    assert browser.evaluate("document.querySelector('#count').textContent") == "1 of 2 images"
    click(browser, "button[type=reset]")
    assert browser.evaluate(rows) == 2


def test_hostile_texts_run_nothing(browser: Browser, site: Site) -> None:
    build(site, FAILED)
    browser.open(write(site, render(hostile(site.fleet("small")))))
    for view in ("#fleet tbody a", *(f"nav a[href='#{name}']" for name in ("timeline", "builds", "changes"))):
        click(browser, view)
        browser.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        browser.evaluate("new Promise((done) => setTimeout(done, 50))")

        assert browser.evaluate("document.querySelectorAll('img, body script').length") == 2
        assert "onerror=alert(2)" in browser.evaluate("document.querySelector('#detail').textContent")
    assert not any(event.get("method") == "Page.javascriptDialogOpening" for event in browser.events)
    assert faults(browser) == []


@pytest.mark.parametrize(
    ("builder", "text"),
    [("", "Engine of this machine; 30 s"), ("farm, cloud", "One of the builders farm, cloud; 30 s")],
)
def test_a_build_names_its_builder(browser: Browser, site: Site, builder: str, text: str) -> None:
    steps = (StepTime("torch", "2/2", "RUN pip install", ("small",), 30.0, False, (), TIME),)
    record_build(Build(BEGAN, builder, steps), site.workspace.project.state)
    browser.open(write(site, render(site.fleet("small"))), "#builds")

    assert text in browser.evaluate(SHOWN)


def test_a_keyboard_reaches_an_image_and_comes_back(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.evaluate("document.querySelector('#fleet .scroll').focus()")
    browser.press("Tab", 9)
    assert browser.evaluate("document.activeElement.textContent") == "small"

    browser.press("Enter", 13, "\r")
    browser.wait("document.activeElement.textContent === 'small' && document.activeElement.matches('h2')")
    browser.evaluate("history.back()")
    browser.wait("document.activeElement.textContent === 'small' && document.activeElement.matches('a')")


def test_the_tab_key_passes_every_control_of_an_image_once(browser: Browser, page: Path) -> None:
    browser.open(page, "#image/small")
    controls = browser.evaluate(
        "[...document.querySelectorAll('a, summary, select, [tabindex=\"0\"]')]"
        ".filter((each) => each.checkVisibility()).map((each) => each.outerHTML)"
    )
    reached = []
    for _ in controls:
        browser.press("Tab", 9)
        reached.append(browser.evaluate("document.activeElement.outerHTML"))

    assert len(controls) > 20
    assert sorted(reached) == sorted(controls)


MAP = "document.querySelector('.treemap')"
OPTIONS = "[...document.querySelectorAll('.treemap [role=option]')]"


@pytest.fixture
def size_map(browser: Browser, site: Site) -> Browser:
    """The view of an image with packages to download."""
    lock(site, mine=500, **{f"tiny-{number}": 1 for number in range(3)})
    browser.open(write(site, render(site.fleet("small"))), "#image/small")
    return browser


def test_the_map_divides_downloads_by_component_and_package(size_map: Browser) -> None:
    text = size_map.evaluate(SHOWN)
    labels = size_map.evaluate(f"{OPTIONS}.map((option) => option.getAttribute('aria-label'))")

    assert "The map shows the downloads of a build, compressed." in text
    assert [label.partition(", ")[2] for label in labels] == [
        "mine: 500 bytes, 99.4 %",
        "3 others: 3 bytes, 0.6 %",
    ]
    assert faults(size_map) == []


def test_arrow_keys_select_an_area_of_the_map(size_map: Browser) -> None:
    picked = "document.querySelector('.picked').textContent"
    size_map.evaluate(f"{MAP}.focus()")
    size_map.press("End", 35)
    assert size_map.evaluate(picked).endswith("3 others: 3 bytes, 0.6 %")
    size_map.press("Home", 36)

    assert size_map.evaluate(picked).endswith("mine: 500 bytes, 99.4 %")
    selected = f"document.getElementById({MAP}.getAttribute('aria-activedescendant'))"
    assert size_map.evaluate(f"{selected}.getAttribute('aria-selected')") == "true"
    assert size_map.evaluate("document.querySelectorAll('[aria-selected=true]').length") == 1


def test_a_click_selects_an_area_of_the_map(size_map: Browser) -> None:
    size_map.evaluate(f"{OPTIONS}[1].click()")

    assert "3 others" in size_map.evaluate("document.querySelector('.picked').textContent")


def test_a_table_has_the_content_of_the_map(size_map: Browser) -> None:
    assert "mine 500 bytes 99.4 %" in " ".join(click(size_map, MAP_TABLE).split())


def test_a_screen_reader_gets_the_areas_of_the_map(size_map: Browser) -> None:
    nodes = size_map.call("Accessibility.getFullAXTree")["nodes"]
    names = {(node["role"]["value"], node.get("name", {}).get("value")) for node in nodes if "role" in node}

    assert ("listbox", "Downloads by component and package") in names


@pytest.mark.parametrize("seed", range(5))
def test_areas_of_a_map_are_proportional_and_fill_it(browser: Browser, page: Path, seed: int) -> None:
    random = Random(seed)
    sizes = sorted((random.paretovariate(0.7) for _ in range(random.randint(1, 60))), reverse=True)
    width, height = random.uniform(50, 2000), random.uniform(50, 2000)
    browser.open(page)
    boxes = browser.evaluate(f"squarify({sizes}, {width}, {height})")

    assert len(boxes) == len(sizes)
    scale = width * height / sum(sizes)
    for size, box in zip(sizes, boxes, strict=True):
        assert box["width"] * box["height"] == pytest.approx(size * scale)
        assert -1e-6 < box["x"] < box["x"] + box["width"] < width + 1e-6
        assert -1e-6 < box["y"] < box["y"] + box["height"] < height + 1e-6
    for one, other in itertools.combinations(boxes, 2):
        common = [
            min(one[start] + one[length], other[start] + other[length]) - max(one[start], other[start])
            for start, length in (("x", "width"), ("y", "height"))
        ]
        assert min(common) < 1e-6


@pytest.mark.parametrize("fragment", ["", "#image/small", "#timeline", "#builds", "#changes"])
def test_a_screen_reader_gets_names(browser: Browser, page: Path, fragment: str) -> None:
    browser.open(page, fragment)
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    named = (
        "link",
        "button",
        "combobox",
        "searchbox",
        "table",
        "columnheader",
        "rowheader",
        "region",
        "heading",
    )
    unnamed = [
        node["role"]["value"]
        for node in nodes
        if not node.get("ignored")
        and node["role"]["value"] in named
        and node["role"]["value"] != "table"
        and not node.get("name", {}).get("value")
    ]
    roles = {node["role"]["value"] for node in nodes}

    assert unnamed == []
    assert {"main", "navigation", "banner", "heading"} <= roles
    assert "table" in roles


@pytest.mark.parametrize("fragment", ["", "#image/small", "#timeline", "#builds", "#changes"])
def test_a_phone_does_not_scroll_sideways(browser: Browser, page: Path, fragment: str) -> None:
    browser.open(page, fragment, width=PHONE, height=844)

    assert browser.evaluate("document.documentElement.scrollWidth") <= PHONE


def test_a_large_fleet_is_shown_whole(browser: Browser, site: Site) -> None:
    fleet = site.fleet("small")
    images = tuple(replace(fleet.images[0], name=f"image-{number}") for number in range(IMAGES))
    changed = tuple(replace(CHANGE, image=image.name) for image in images)
    content = render(replace(fleet, images=images, since=replace(SINCE, changed=changed)))
    browser.open(write(site, content))

    assert browser.evaluate("document.querySelectorAll('#fleet tbody tr').length") == IMAGES
    assert "200 more changed images" in click(browser, "nav a[href='#changes']")
    changed_rows = "document.querySelectorAll('#detail tbody tr').length"
    assert browser.evaluate(changed_rows) == 100
    click(browser, "#detail > details summary")
    assert browser.evaluate(changed_rows) == IMAGES
    assert faults(browser) == []


def test_without_a_commit_the_page_has_no_view_of_changes(browser: Browser, site: Site) -> None:
    browser.open(write(site, render(site.fleet("small"))), "#changes")

    assert browser.evaluate("document.querySelector('#fleet').hidden") is False
    assert "Changes" not in browser.evaluate("document.querySelector('nav').innerText")
    assert faults(browser) == []
