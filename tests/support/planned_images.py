"""A planned image, and the software that is installed in it."""

from pathlib import Path

from bakehouse.analysis.packages import Distribution, Installed, SystemPackage
from bakehouse.catalog.component import Artifact
from bakehouse.catalog.python_lock import Package
from bakehouse.errors import Location
from bakehouse.plan.model import Image, InstalledComponent, Stage
from bakehouse.util.oci import Digest
from tests.support import plans
from tests.support.fake_engine import image

DIGEST = Digest("sha256:" + "4f" * 32)
HERE = Location(Path("component.yaml"), 1, 1)
SITE = "/opt/venv/lib/python3.11/site-packages"
ADDRESS = "https://ci:secret@example.com/metis.tgz?sig=x"
METIS = Artifact("source", "url", ADDRESS, "metis.tgz", "ab" * 32, HERE)
DEBS = Artifact("debian", "debian", "metis=5.1.0.dfsg-7", "metis_5.1.0.dfsg.orig.tar.xz", None, HERE)
WHEEL = Package("scikit_learn", "1.7.2", "cd" * 32, "scikit_learn-1.7.2-cp311-cp311-linux.whl", 1, HERE)


def stage(part: InstalledComponent, *artifacts: Artifact, wheels: tuple[Package, ...] = ()) -> Stage:
    return plans.stage(part, wheels, artifacts, key="1" * 64)


def planned() -> Image:
    metis = InstalledComponent("metis", "5.1.0", "int32")
    part = stage(metis, METIS, DEBS, wheels=(WHEEL,))
    return plans.changed(image(parts=(metis,)), stages=(part,))


INSTALLED = Installed(
    system="debian",
    system_version="12",
    packages=(SystemPackage("libc6", "2.36-9+deb12u13", "amd64"), SystemPackage("tzdata", "1:2026a", "all")),
    distributions=(
        Distribution("PyYAML", "6.0.3", ("/usr/lib/python3/dist-packages", SITE)),
        Distribution("scikit-learn", "1.7.2", (SITE,)),
    ),
)
