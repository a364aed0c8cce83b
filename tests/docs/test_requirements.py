"""The page of requirements names the hosts that the test of hosts simulates, and what they lack."""

import re

from bakehouse.catalog.project import HOME
from tests.integration.foreign_host import ABSENT, HOSTS

PAGE = (HOME / "docs/reference/requirements.md").read_text()


def test_the_simulated_hosts_are_those_of_the_test() -> None:
    assert re.findall(r"^\| (.+?) \| simulated \|$", PAGE, re.MULTILINE) == [*HOSTS]


def test_what_the_hosts_lack_is_absent_there() -> None:
    [sentence] = re.findall(r"It has no (apt, .+?)\.\s", PAGE.replace("\n", " "))
    for program in re.split(r", | and ", sentence):
        assert any(program == glob.rstrip("*") for glob in ABSENT), program


RIGS = ("foreign_host", "macos", "engine_elsewhere", "rootless")
"""Tests on simulated hosts and engines, in `tests/integration`."""


def test_each_test_of_hosts_and_engines_is_named() -> None:
    named = {*re.findall(r"\btest_(\w+)\.py", PAGE)}
    assert {*RIGS} <= named
    files = {path.stem.removeprefix("test_") for path in (HOME / "tests").rglob("test_*.py")}
    assert named <= files
