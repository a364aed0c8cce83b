"""The changelog names the present version, and what it does to build keys."""

import re
import tomllib

from bakehouse import __version__
from bakehouse.catalog.project import HOME

CHANGELOG = (HOME / "CHANGELOG.md").read_text()


def test_the_top_entry_is_the_version_of_the_package() -> None:
    versions = re.findall(r"^## (.+)$", CHANGELOG, re.M)
    package = tomllib.loads((HOME / "pyproject.toml").read_text())["project"]["version"]

    assert versions[0] == package == __version__
    assert len(versions) == len({*versions})


def test_the_top_entry_says_which_keys_change() -> None:
    top = CHANGELOG.split("\n## ")[1]

    assert "- **Keys**: " in top
