"""The licence of Bakehouse, in the checkout and in the wheel."""

import hashlib
import tomllib
from fnmatch import fnmatch

from bakehouse.catalog.project import HOME

COPYRIGHT = "Copyright 2026 Bakehouse contributors"
APACHE_2 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
"""The sha256 of the text with its placeholder, as apache.org and Debian have it."""


def test_the_licence_is_the_apache_license() -> None:
    text = (HOME / "LICENSE").read_text()
    original = text.replace(COPYRIGHT, "Copyright [yyyy] [name of copyright owner]")

    assert text.count(COPYRIGHT) == 1
    assert hashlib.sha256(original.encode()).hexdigest() == APACHE_2


def test_the_package_names_it() -> None:
    project = tomllib.loads((HOME / "pyproject.toml").read_text())["project"]

    assert project["license"] == "Apache-2.0"
    assert any(fnmatch("LICENSE", pattern) for pattern in project["license-files"])
