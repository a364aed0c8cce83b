"""Images to test with, until the session builds its own."""

from pathlib import Path

import pytest

from bakehouse import containers
from bakehouse.build import BuiltImage
from bakehouse.plan import BootstrappedBase, Digest, Image, ImageKey, Part

COMPONENTS = Path(__file__).parents[2] / "recipes" / "components"


def _image(name: str, launchers: tuple[str, ...], module: str | None) -> tuple[Image, BuiltImage]:
    stored = containers.connect().image(f"proto/{name}")
    if stored is None:
        pytest.skip(f"no image {name}")
    parts = tuple(
        Part(component, version, "", COMPONENTS / component / "smoke.py")
        for component, version in (("mpi4py", "4.1.2"), ("open-mpi", "4.1.8"))
    )
    base = BootstrappedBase("bakehouse/debian:12", "bookworm", ())
    image = Image(name, ImageKey("0" * 64), "", base, parts, False, launchers, module)
    return image, BuiltImage(image, Digest(stored.digest), stored.bytes)


@pytest.fixture(scope="session")
def mpi_cpu() -> tuple[Image, BuiltImage]:
    return _image("mpi-cpu", ("mpirun",), None)


@pytest.fixture(scope="session")
def pytorch_cpu() -> tuple[Image, BuiltImage]:
    return _image("pytorch-cpu", ("torchrun", "mpirun"), "sagemaker_pytorch_container.training:main")
