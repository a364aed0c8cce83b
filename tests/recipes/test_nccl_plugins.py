"""Which NCCL plugin a process opens in NVIDIA's image, with plugins of HPC-X and of AWS as empty files."""

import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.scripts import load_script

COMPONENTS = Path(__file__).parents[2] / "recipes/components"
OFI, SPCX = "opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so", "opt/hpcx/spectrum-x/lib/libnccl-net-spcx.so"
SELECT = "set NCCL_NET_PLUGIN to `ofi` for AWS's plugin"
SHARP = "opt/hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net.so"


class Image:
    """An image with some plugins; `cached` ones are in the loader's cache."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.monkeypatch = monkeypatch
        monkeypatch.delenv("NCCL_NET_PLUGIN", raising=False)
        monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
        self.contains()

    def contains(self, *plugins: str, cached: tuple[str, ...] = ()) -> None:
        for plugin in plugins:
            path = self.root / plugin
            path.parent.mkdir(parents=True)
            path.touch()
        lines = [f"\t{Path(plugin).name} (libc6,x86-64) => {self.root / plugin}\n" for plugin in cached]
        output = subprocess.CompletedProcess(["ldconfig"], 0, "".join(lines), "")
        self.monkeypatch.setattr(subprocess, "run", lambda *_, **__: output)

    def script(self, component: str) -> ModuleType:
        script = load_script(COMPONENTS / component / "smoke.py")
        script.AMAZON = self.root / "opt/amazon"  # type: ignore[attr-defined]
        script.HPCX = self.root / "opt/hpcx"  # type: ignore[attr-defined]
        return script

    def problem(self) -> str:
        """Return the message of the check, with paths as in an image; empty if it passes."""
        try:
            self.script("nvidia-ngc-pytorch").check_nccl_opens_the_plugin_for_efa()
        except AssertionError as error:
            return str(error).replace(f"{self.root}/", "/")
        return ""


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Image:
    return Image(tmp_path, monkeypatch)


def test_the_selected_plugin_of_aws_passes(image: Image) -> None:
    image.contains(OFI, SHARP, cached=(SHARP, OFI))
    image.monkeypatch.setenv("NCCL_NET_PLUGIN", "ofi")

    assert image.problem() == ""


def test_a_plugin_of_aws_on_the_library_path_passes(image: Image) -> None:
    plugin = OFI.replace("-ofi", "")
    image.contains(plugin, SHARP, cached=(SHARP,))
    image.monkeypatch.setenv("LD_LIBRARY_PATH", str((image.root / plugin).parent))

    assert image.problem() == ""


def test_the_default_plugin_of_hpc_x_is_reported(image: Image) -> None:
    image.contains(OFI, SHARP, cached=(SHARP, OFI))

    assert image.problem() == (
        f"NCCL opens /{SHARP}, so it uses TCP between instances with EFA; {SELECT}. "
        f"NCCL_NET_PLUGIN: not set; plugins: /{OFI}, /{SHARP}"
    )


def test_the_plugin_that_the_image_selects_is_reported(image: Image) -> None:
    image.contains(OFI, SPCX, cached=(SPCX, OFI))
    image.monkeypatch.setenv("NCCL_NET_PLUGIN", "spcx")

    assert image.problem() == (
        f"NCCL opens /{SPCX}, so it uses TCP between instances with EFA; {SELECT}. "
        f"NCCL_NET_PLUGIN: spcx; plugins: /{OFI}, /{SPCX}"
    )


def test_a_selected_plugin_that_the_loader_cannot_find_is_reported(image: Image) -> None:
    image.contains(OFI, cached=(OFI,))
    image.monkeypatch.setenv("NCCL_NET_PLUGIN", "spcx")

    assert image.problem() == (
        f"NCCL finds no libnccl-net-spcx.so, so it uses TCP between instances with EFA; {SELECT}. "
        f"NCCL_NET_PLUGIN: spcx; plugins: /{OFI}"
    )


def test_an_image_without_a_plugin_of_aws_is_reported(image: Image) -> None:
    image.contains(SHARP, cached=(SHARP,))

    assert image.problem() == (
        "the image has no plugin for EFA, so NCCL uses TCP between instances; add the component `efa`. "
        f"NCCL_NET_PLUGIN: not set; plugins: /{SHARP}"
    )


@pytest.mark.parametrize(("selected", "plugins"), [("ofi", [OFI]), ("", [OFI, SHARP])])
def test_efa_counts_only_plugins_of_the_selected_name(
    image: Image, selected: str, plugins: list[str]
) -> None:
    image.contains(OFI, SHARP, cached=(SHARP, OFI))
    if selected:
        image.monkeypatch.setenv("NCCL_NET_PLUGIN", selected)
    efa = image.script("efa")
    image.monkeypatch.setattr(efa, "SYSTEM", ())

    assert efa.plugins(image.root / "lib") == [image.root / plugin for plugin in plugins]
