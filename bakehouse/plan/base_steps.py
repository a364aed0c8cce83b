"""Build steps that make a base from Debian packages. The key of a base covers all of them."""

from bakehouse.util.oci import EPOCH

EXCLUDED = ("doc", "man", "info", "locale", "lintian", "i18n")
"""Directories of /usr/share whose files are not installed, except for copyright files."""
NO_MIRRORS = "# The packages of this image are locked by sha256. To install others, name a mirror here."
FILES = {
    "etc/dpkg/dpkg.cfg.d/bakehouse": "".join(f"path-exclude=/usr/share/{name}/*\n" for name in EXCLUDED)
    + "path-include=/usr/share/doc/*/copyright\nforce-unsafe-io\n",
    "etc/apt/apt.conf.d/90bakehouse": 'APT::Install-Recommends "false";\nAcquire::Languages "none";\n',
    "etc/apt/sources.list": f"{NO_MIRRORS}\n",
}
"""Files of a base that are not from packages."""
FIRST, OTHERS = "first", "others"
"""Lists of package files, in the order of their installation."""
FIRST_PACKAGES = ("base-passwd", "base-files")
"""They provide users and directories, which scripts of the other packages need."""
FORM = 1
"""Version of the rules by which Python unpacks packages and packs the layer. Increase it when they change."""
DOCKERFILE = f"""\
FROM scratch AS base
ADD tree.tar /
RUN --network=none --mount=type=bind,source=packages,target=/packages <<"END"
set -e
umask 022
export DEBIAN_FRONTEND=noninteractive DEBCONF_NONINTERACTIVE_SEEN=true
export LC_ALL=C.UTF-8 TZ=UTC SOURCE_DATE_EPOCH={EPOCH}
# The scripts of Python's packages import modules, whose bytecode would stay in the image
export PYTHONDONTWRITEBYTECODE=1
cd /packages
# Essential packages are unpacked, so their programs work. dpkg unpacks all packages before it configures one,
# and configures each after its dependencies; `apt-get check` finds those that are missing
dpkg --force-depends --install $(cat {FIRST})
dpkg --force-depends --install $(cat {OTHERS})
apt-get check -q
dpkg --audit > /tmp/audit
if [ -s /tmp/audit ]; then
    cat /tmp/audit
    exit 1
fi
rm -rf /tmp/* /var/log/* /var/lib/apt/lists/* /var/cache/apt/* /var/cache/ldconfig/aux-cache
rm -rf /var/cache/debconf/*-old /var/lib/dpkg/*-old /etc/*-
END
"""
KEY = (FORM, DOCKERFILE, *FILES.items())
"""All inputs of a base except its packages."""
