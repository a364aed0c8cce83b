"""Mirrors with security updates, and an image with locked packages."""

from hashlib import sha256

import pytest

from bakehouse.catalog.apt_lock import deb_of, stanzas
from bakehouse.lock import apt
from bakehouse.lock.apt import Resolved, package_changes
from tests.support.debian_packages import deb
from tests.support.locked_debian import PACKAGES, index, stanza
from tests.support.trees import IMAGE, SHA, Tree

CHANGELOG = """\
openssl (1.2) sid-security; urgency=high

  * Complete the fix of CVE-2026-0001; fix CVE-2026-0002

 -- A Test <t@e.st>  Wed, 21 Oct 2026 16:54:24 +0700

openssl (1.1) sid-security; urgency=medium

  * CVE-2026-0001, CVE-2026-0003

 -- A Test <t@e.st>  Wed, 23 Sep 2026 10:52:17 +0700

openssl (1.0) sid; urgency=medium

  * CVE-2025-9999

 -- A Test <t@e.st>  Mon, 04 May 2026 20:47:50 +0200
"""


class Mirror:
    """Mirrors of a suite; its files are in a directory of the project."""

    def __init__(self, tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
        self._tree = tree
        self.packages = {fields["Package"]: fields for _, fields in stanzas(index())}
        self.has_security_updates = True
        monkeypatch.setattr(apt, "resolve", self._resolve)

    def update(self, name: str, version: str, changelog: str, **fields: str) -> None:
        """Add a newer version of a package; its file has no changelog if the text is empty."""
        files = {"changelog.Debian.gz": changelog} if changelog else {}
        directory = self._tree.root / "mirror"
        directory.mkdir(exist_ok=True)
        content = deb(directory, name, version, files).read_bytes()
        added = {"Version": version, "Size": str(len(content)), "SHA256": sha256(content).hexdigest()}
        text = stanza(name, {**PACKAGES[name], **added, **fields})
        [(_, self.packages[name])] = stanzas(text)

    def _resolve(self, *_: object, **options: object) -> Resolved:
        # A scan asks for the newest of all packages, a fix for those with findings
        assert options["upgrade"] in (None, ("openssl",))
        locked = (deb_of(fields) for _, fields in stanzas(index()))
        changes = package_changes({deb.name: deb for deb in locked if deb}, self.packages)
        return Resolved(self.packages, changes, self.has_security_updates)


LOCK = f"""\
demo-package==1.0 --hash=sha256:{SHA}  # demo_package-1.0-py3-none-any.whl 10
other==3.0 --hash=sha256:{SHA}  # other-3.0-py3-none-any.whl 10
"""


def install(tree: Tree, lock: str = LOCK) -> None:
    """Add locked Python packages to the image."""
    tree.write("images/own.lock", lock)
    tree.image(IMAGE + "requirements: own.lock\n")
