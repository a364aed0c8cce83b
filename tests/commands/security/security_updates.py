"""Mirrors with security updates, and an image with locked packages."""

from hashlib import sha256

import pytest

from bakehouse.catalog.apt_lock import deb_of, stanzas
from bakehouse.lock import apt
from bakehouse.lock.apt import Resolved, package_changes
from tests.support.debian_packages import deb
from tests.support.locked_debian import PACKAGES, index, stanza
from tests.support.trees import IMAGE, SHA, Tree


class Mirror:
    """Mirrors of a suite; its files are in a directory of the project."""

    def __init__(self, tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
        self._tree = tree
        self.packages = {fields["Package"]: fields for _, fields in stanzas(index())}
        monkeypatch.setattr(apt, "resolve", self._resolve)

    def update(self, name: str, version: str) -> None:
        """Add another version of a package."""
        directory = self._tree.root / "mirror"
        directory.mkdir(exist_ok=True)
        content = deb(directory, name, version, {}).read_bytes()
        added = {"Version": version, "Size": str(len(content)), "SHA256": sha256(content).hexdigest()}
        text = stanza(name, {**PACKAGES[name], **added})
        [(_, self.packages[name])] = stanzas(text)

    def _resolve(self, *_: object, **options: object) -> Resolved:
        assert options["upgrade"] == ("openssl",)
        locked = (deb_of(fields) for _, fields in stanzas(index()))
        changes = package_changes({deb.name: deb for deb in locked if deb}, self.packages)
        return Resolved(self.packages, changes)


LOCK = f"""\
demo-package==1.0 --hash=sha256:{SHA}  # demo_package-1.0-py3-none-any.whl 10
other==3.0 --hash=sha256:{SHA}  # other-3.0-py3-none-any.whl 10
"""


def install(tree: Tree, lock: str = LOCK) -> None:
    """Add locked Python packages to the image."""
    tree.write("images/own.lock", lock)
    tree.image(IMAGE + "requirements: own.lock\n")
