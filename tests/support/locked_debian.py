"""A small Debian that is locked: what its packages need of each other is what the tests are about."""

from collections.abc import Mapping
from hashlib import sha256

from bakehouse.catalog.apt_lock import Deb

LOCKED = (Deb("base-files", "12.4", "5e" * 32, 70936, "pool/main/b/base-files/base-files_12.4_amd64.deb"),)
"""Facts that make the base of a test releasable."""
PACKAGES: Mapping[str, Mapping[str, str]] = {
    "base-files": {"Essential": "yes", "Depends": "libc6 (>= 2.34)"},
    "libc6": {"Depends": "libgcc-s1"},
    "libgcc-s1": {"Depends": "libc6 (>= 2.35)"},
    "dpkg": {"Priority": "required", "Pre-Depends": "libc6"},
    "apt": {"Depends": "gpgv2 | gpgv, libc6"},
    "gpgv": {},
    "ca-certificates": {"Depends": "openssl (>= 1.1.1), debconf (>= 0.5) | debconf-2.0"},
    "openssl": {"Depends": "libc6"},
    "cdebconf": {"Provides": "debconf-2.0"},
    "gcc": {"Depends": "gcc-12 (>= 12.2~)"},
    "gcc-12": {"Version": "12.2", "Depends": "cpp-12 (= 12.2), libc6:any"},
    "cpp-12": {"Version": "12.2"},
    "awk-of-mine": {"Provides": "awk"},
}


def index(packages: Mapping[str, Mapping[str, str]] = PACKAGES) -> str:
    """A `Packages` index of those."""
    return "\n".join(stanza(name, fields) for name, fields in packages.items())


def stanza(name: str, fields: Mapping[str, str]) -> str:
    version = fields.get("Version", "1.0")
    all_of_it = {
        "Package": name,
        "Architecture": "amd64",
        "Filename": f"pool/main/{name[0]}/{name}/{name}_{version}_amd64.deb",
        "Size": "1000",
        "SHA256": sha256(f"{name} {version}".encode()).hexdigest(),
        **fields,
        "Version": version,
    }
    return "".join(f"{key}: {value}\n" for key, value in all_of_it.items())
