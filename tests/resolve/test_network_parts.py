"""Network components: compatible versions, and the warning when NCCL would fall back to TCP."""

import ctypes
import importlib.util
import os
import shutil
import subprocess
import sys
import types
import unittest
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from packaging.version import Version

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.component import Incompatibility
from bakehouse.catalog.project import HOME
from bakehouse.catalog.recipe import load_recipes
from bakehouse.cli.diagnostics import failure_text
from bakehouse.resolve.candidate import Candidate, incompatible_candidates
from bakehouse.resolve.conflict_report import conflict_error
from bakehouse.resolve.resolver import Resolution, Unsatisfiable, resolve
from tests.support import own_recipes
from tests.support.errors import raised

COMPONENTS = HOME / "recipes" / "components"

TOOLKIT = (
    "--host algo-1:2,algo-2:2 -np 4 --allow-run-as-root --display-map --tag-output"
    " -mca btl_tcp_if_include eth0 -mca oob_tcp_if_include eth0 -mca plm_rsh_no_tree_spawn 1"
    " -bind-to none -map-by slot -mca pml ob1 -mca btl ^openib -mca orte_abort_on_non_zero_status 1"
    " -mca btl_vader_single_copy_mechanism none -x NCCL_DEBUG=INFO python3 -m mpi4py train.py --nodes 1"
)
"""The mpirun options of sagemaker-training 5.1.4."""


@cache
def catalog() -> Catalog:
    return own_recipes.catalog()


def candidates(name: str) -> list[Candidate]:
    component = catalog().components[name]
    return [
        Candidate(component, release, each) for release in component.releases for each in release.variants
    ]


def candidate_of(name: str, version: str) -> Candidate:
    return next(candidate for candidate in candidates(name) if candidate.release.version == version)


def broken(*parts: Candidate) -> list[Incompatibility]:
    """Known incompatibilities of these components."""
    return [
        conflict
        for part in parts
        for conflict in part.spec.conflicts
        if incompatible_candidates(conflict, parts)
    ]


@dataclass(frozen=True)
class RecipeDirectory:
    """A directory in which a recipe can be written and resolved with the catalogue."""

    directory: Path

    def resolve(self, text: str) -> Resolution:
        path = self.directory / "images" / "mine.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"summary: mine\n{text}\n")
        return resolve(load_recipes([self.directory], catalog())["mine"], catalog())

    def answer(self, text: str) -> str:
        """Return the error report of an unsatisfiable image."""
        error = raised(Unsatisfiable, self.resolve, text)
        return failure_text(conflict_error(error.conflict, catalog()).diagnostics[0])


@pytest.fixture
def recipe_directory(tmp_path: Path) -> RecipeDirectory:
    return RecipeDirectory(tmp_path)


def cuda(version: str, ubuntu: str, *components: str, flavour: str = "runtime") -> str:
    lines = "".join(f"\n  {line}" for line in components)
    base = f'base: {{nvidia-cuda: "{version}"}}\nvariants: {{nvidia-cuda: "{flavour}-ubuntu{ubuntu}"}}'
    return f"{base}\ncomponents:{lines}"


def test_each_installer_says_which_open_mpi_it_has_or_is_kept_from_images_that_need_one() -> None:
    for candidate in candidates("efa"):
        refused = [
            part.name for conflict in candidate.spec.conflicts for part in conflict.parts if conflict.is_error
        ]
        assert ("open-mpi" in candidate.provided) != ("open-mpi" in refused), str(candidate)


def test_installers_have_both_open_mpi_from_1_30_and_the_plugin_from_1_38() -> None:
    for release in catalog().components["efa"].releases:
        version = Version(release.version)
        names = [variant.name for variant in release.variants]
        assert names == (["openmpi4", "openmpi5"] if version >= Version("1.30") else [""]), release.version
        for variant in release.variants:
            has_plugin = "aws-ofi-nccl" in variant.spec.provides
            assert has_plugin == (version >= Version("1.38")), release.version
            assert any("ofi-nccl" in directory for directory in variant.spec.library_path) == has_plugin


def test_no_image_has_two_plugins() -> None:
    """Each separate plugin asks for an installer that brings none."""
    for candidate in candidates("aws-ofi-nccl"):
        demands = [demand for demand in candidate.spec.requires if demand.name == "efa"]
        assert demands
        assert not any(demand.allows("1.38.0") for demand in demands), str(candidate)


def test_both_open_mpi_5_have_the_same_mpirun() -> None:
    texts = [(COMPONENTS / name / "files" / "mpirun").read_text() for name in ("efa", "open-mpi")]
    assert texts[0] == texts[1]


def test_an_installer_of_unknown_open_mpi_is_passed_over(recipe_directory: RecipeDirectory) -> None:
    resolution = recipe_directory.resolve(
        cuda("11.3.1", "20.04", 'python: "3.8"', 'efa: ">=1.15.1,<1.17.1"', 'mpi4py: "*"', flavour="*")
    )
    assert resolution.version_of("efa") == "1.17.0"
    text = cuda("11.3.1", "20.04", 'python: "3.8"', 'efa: "1.16.0"', 'mpi4py: "*"', flavour="*")
    assert 'use `efa: "1.17.3"`' in recipe_directory.answer(text)
    [conflict] = broken(candidate_of("efa", "1.16.0"), candidate_of("open-mpi", "4.1.4"))
    assert conflict.reason == "the Open MPI version of this installer is not recorded"


def test_nccl_2_19_is_refused_with_an_older_installer_than_1_29(recipe_directory: RecipeDirectory) -> None:
    text = cuda("12.2.2", "22.04", 'efa: "1.28.0"', 'nccl: "2.19.3"', flavour="*")
    report = recipe_directory.answer(text)
    assert "its libfabric can't register memory for NCCL 2.19 and later" in report
    assert "https://github.com/aws/aws-ofi-nccl/issues/584" in report
    assert 'use `efa: "1.29.1"`' in report
    [conflict] = broken(candidate_of("efa", "1.28.0"), candidate_of("nccl", "2.19.3"))
    assert conflict.is_error
    assert conflict.source == "https://github.com/aws/aws-ofi-nccl/issues/584"
    assert not broken(candidate_of("efa", "1.28.0"), candidate_of("nccl", "2.18.5"))
    newer = cuda("12.2.2", "22.04", 'efa: "1.29.0"', 'nccl: "2.19.3"', flavour="*")
    assert recipe_directory.resolve(newer).version_of("nccl") == "2.19.3"


def test_the_plugin_that_hangs_is_refused(recipe_directory: RecipeDirectory) -> None:
    report = recipe_directory.answer(cuda("12.8.1", "24.04", 'efa: "1.47.0"', 'nccl: "2.28.9"'))
    assert "hangs when NCCL broadcasts" in report
    assert "https://github.com/aws/deep-learning-containers/pull/6551" in report
    alone = cuda("12.8.1", "24.04", 'efa: "1.47.0"')
    assert recipe_directory.resolve(alone).version_of("open-mpi") == "4.1.7"


def test_a_second_plugin_is_refused(recipe_directory: RecipeDirectory) -> None:
    components = ('efa: "1.46.0"', 'nccl: "2.27.7"', 'aws-ofi-nccl: "1.16.3"')
    assert "1.17.2" in recipe_directory.answer(cuda("12.8.1", "24.04", *components))
    provided = recipe_directory.resolve(cuda("12.8.1", "24.04", *components[:2], 'aws-ofi-nccl: ">=1.17"'))
    assert provided.version_of("aws-ofi-nccl") == "1.17.2"
    assert "aws-ofi-nccl" not in [choice.name for choice in provided.choices]


def test_an_old_installer_has_a_plugin_compiled_for_it(recipe_directory: RecipeDirectory) -> None:
    components = ('efa: "1.30.0"', 'nccl: "2.19.3"', 'aws-ofi-nccl: "*"')
    resolution = recipe_directory.resolve(cuda("12.2.2", "22.04", *components, flavour="*"))
    # 1.9.0 is the first whose notes name 2.21, and 1.10.0 the first for P instances alone
    assert resolution.version_of("aws-ofi-nccl") == "1.12.1"


def test_open_mpi_5_is_asked_for_by_its_variant(recipe_directory: RecipeDirectory) -> None:
    text = cuda("12.8.1", "24.04", 'python: "3.12"', 'efa: "1.46.0"', 'mpi4py: "*"')
    assert recipe_directory.resolve(text).version_of("open-mpi") == "4.1.7"
    five = text.replace("variants: {", "variants: {efa: openmpi5, ")
    assert recipe_directory.resolve(five).version_of("open-mpi") == "5.0.8"
    recipe = f'{text}\n  open-mpi: ">=5"'
    assert recipe_directory.resolve(recipe).version_of("open-mpi") == "5.0.8"


@pytest.mark.parametrize("owner", ["efa", "open-mpi"])
def test_mpirun_puts_the_toolkits_options_into_the_new_launchers_words(owner: str, tmp_path: Path) -> None:
    shutil.copy(COMPONENTS / owner / "files" / "mpirun", tmp_path)
    (tmp_path / "mpirun").chmod(0o755)
    (tmp_path / "mpirun.real").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "mpirun.real").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    command = ["mpirun", *TOOLKIT.split(), "--message=two words"]
    result = subprocess.run(command, env={"PATH": path}, capture_output=True, text=True, check=True)
    expected = (
        TOOLKIT.replace(" -bind-to", " --bind-to")
        .replace(" -map-by", " --map-by")
        .replace("-mca oob_tcp_if_include", "--prtemca prte_if_include")
        .replace("-mca plm_rsh_no_tree_spawn", "--prtemca plm_ssh_no_tree_spawn")
        .replace("-mca orte_abort_on_non_zero_status", "--prtemca prte_abort_on_non_zero_status")
        .replace(" -mca ", " --mca ")
    )
    assert result.stdout.splitlines() == [*expected.split(), "--message=two words"]


COMPILED: dict[tuple[str, ...], bytes] = {}
"""Libraries by their code and options: the compiler takes longer than a check."""


@dataclass(frozen=True)
class FakeLibraries:
    """A small tree like an image's, of shared libraries that gcc compiles."""

    root: Path
    monkeypatch: pytest.MonkeyPatch

    def library(self, path: str, code: str, *options: str) -> Path:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        key = (code, *(option.removeprefix(str(self.root)) for option in options))
        if key not in COMPILED:
            command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-x", "none", "-o", str(target), *options]
            subprocess.run(command, input=code, text=True, check=True)
            COMPILED[key] = target.read_bytes()
        # A library that is loaded must not change
        target.unlink(missing_ok=True)
        target.write_bytes(COMPILED[key])
        return target

    def fabric(self, directory: str = "amazon/efa/lib") -> None:
        self.library(
            f"{directory}/libfabric.so.1", "int fi_version(void) { return 0; }", "-Wl,-soname,libfabric.so.1"
        )

    def plugin(self, path: str, *faces: int) -> None:
        code = "int fi_version(void); int call(void) { return fi_version(); }"
        code += "".join(f"int ncclNetPlugin_v{face};" for face in faces)
        self.library(path, code, str(self.root / "amazon/efa/lib/libfabric.so.1"))

    def nccl(self, *faces: int, path: str = "nccl/libnccl.so.2") -> None:
        names = ",".join(f'"ncclNetPlugin_v{face}"' for face in faces)
        self.library(path, f"const char *names[] = {{{names}}};")

    def path(self, *directories: str) -> None:
        self.monkeypatch.setenv(
            "LD_LIBRARY_PATH", ":".join(str(self.root / directory) for directory in directories)
        )

    def verdicts(self) -> dict[str, str]:
        """The name of each check of NCCL's plugin, with what it says."""
        module = smoke("efa")
        self.monkeypatch.setattr(module, "AMAZON", self.root / "amazon")
        outcomes = {
            name.removeprefix("check_"): check for name, check in vars(module).items() if "nccl_" in name
        }
        return {name: _verdict(outcomes[name]) for name in outcomes if f"check_{name}" in vars(module)}


def _verdict(check: Callable[[], None]) -> str:
    try:
        check()
    except unittest.SkipTest as skip:
        return f"not tested: {skip}" if str(skip) else "not applicable"
    except AssertionError as error:
        return str(error)
    return "passed"


def smoke(component: str) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("its_smoke", COMPONENTS / component / "smoke.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


INSTALLED_PATHS = ("nccl", "amazon/ofi-nccl/lib", "amazon/efa/lib")


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLibraries:
    """NCCL 2.20 with the plugin and the libfabric of EFA's installer."""
    if not shutil.which("gcc") or sys.platform != "linux":
        pytest.skip("needs gcc")
    for name in ("NCCL_NET_PLUGIN", "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)
    rig = FakeLibraries(tmp_path.resolve(), monkeypatch)
    rig.fabric()
    rig.plugin("amazon/ofi-nccl/lib/libnccl-net-ofi.so", 4, 5, 6, 7, 8, 9)
    (rig.root / "amazon/ofi-nccl/lib/libnccl-net.so").symlink_to("libnccl-net-ofi.so")
    rig.nccl(5, 6, 7, 8)
    rig.path(*INSTALLED_PATHS)
    return rig


def test_a_plugin_that_nccl_takes_passes(libraries: FakeLibraries) -> None:
    assert libraries.verdicts() == {
        "one_nccl_plugin": "passed",
        "nccl_plugin_loads": "passed",
        "nccl_plugin_uses_this_libfabric": "passed",
        "nccl_takes_the_plugin": "passed",
    }


def test_checks_of_the_plugin_do_not_apply_to_an_image_without_nccl(libraries: FakeLibraries) -> None:
    libraries.path(*INSTALLED_PATHS[1:])
    assert set(libraries.verdicts().values()) == {"not applicable"}


def test_a_missing_plugin_is_reported(libraries: FakeLibraries) -> None:
    libraries.path("nccl", "amazon/efa/lib")
    verdicts = libraries.verdicts()
    assert verdicts["one_nccl_plugin"] == "no NCCL plugin is on the loader's path, so NCCL uses TCP"
    assert "libnccl-net.so: cannot open shared object file" in verdicts["nccl_plugin_loads"]


def test_a_second_plugin_is_reported(libraries: FakeLibraries) -> None:
    libraries.plugin("usr/local/lib/libnccl-net.so", 4)
    libraries.path(*INSTALLED_PATHS, "usr/local/lib")
    verdicts = libraries.verdicts()
    assert verdicts["one_nccl_plugin"].startswith("2 NCCL plugins are on the loader's path: ")
    assert str(libraries.root / "usr/local/lib/libnccl-net.so") in verdicts["one_nccl_plugin"]


def test_a_plugin_beside_a_wheels_nccl_is_reported(libraries: FakeLibraries) -> None:
    libraries.plugin("nccl/libnccl-net-other.so", 8)
    libraries.path(*INSTALLED_PATHS)
    assert "libnccl-net-other.so" in libraries.verdicts()["one_nccl_plugin"]


def test_another_libfabric_is_reported(libraries: FakeLibraries) -> None:
    libraries.fabric("opt/libfabric/lib")
    libraries.path("opt/libfabric/lib", *INSTALLED_PATHS)
    verdicts = libraries.verdicts()
    wrong = libraries.root / "opt/libfabric/lib/libfabric.so.1"
    assert verdicts["nccl_plugin_uses_this_libfabric"] == (
        f"the plugin loads {wrong}, not the libfabric of EFA's installer"
    )
    assert verdicts["nccl_plugin_loads"] == "passed"


def test_a_plugin_without_its_libfabric_is_reported(libraries: FakeLibraries) -> None:
    libraries.path("nccl", "amazon/ofi-nccl/lib")
    verdict = libraries.verdicts()["nccl_plugin_loads"]
    assert verdict.startswith("the plugin can't be loaded, so NCCL uses TCP: libfabric.so.1: cannot open")


def test_faces_too_old_for_nccl_are_reported(libraries: FakeLibraries) -> None:
    """aws-ofi-nccl 1.1.3, compiled against NCCL 2.10, with PyTorch 2.2."""
    libraries.plugin("amazon/ofi-nccl/lib/libnccl-net-ofi.so", 4)
    library = libraries.root / "nccl/libnccl.so.2"
    assert libraries.verdicts()["nccl_takes_the_plugin"] == (
        f"the plugin has interface versions v4, but NCCL ({library}) supports v5, v6, v7, v8, "
        "so NCCL uses TCP"
    )


def test_the_name_that_the_image_sets_is_the_one_opened(libraries: FakeLibraries) -> None:
    (libraries.root / "amazon/ofi-nccl/lib/libnccl-net.so").unlink()
    assert "cannot open" in libraries.verdicts()["nccl_plugin_loads"]
    libraries.monkeypatch.setenv("NCCL_NET_PLUGIN", "ofi")
    assert set(libraries.verdicts().values()) == {"passed"}


def test_a_plugin_that_needs_the_driver_is_not_tested_further(libraries: FakeLibraries) -> None:
    driver = libraries.library("stub/libcuda.so.1", "int cuInit;", "-Wl,-soname,libcuda.so.1")
    code = "extern int cuInit; int *cuda = &cuInit; int ncclNetPlugin_v8;"
    libraries.library("amazon/ofi-nccl/lib/libnccl-net-ofi.so", code, str(driver))
    verdicts = libraries.verdicts()
    assert verdicts["one_nccl_plugin"] == "passed"
    assert verdicts["nccl_plugin_loads"].startswith("not tested: needs the host's driver: libcuda.so.1")


def test_the_nccl_inside_an_older_pytorch_counts(libraries: FakeLibraries) -> None:
    """The other one, on the loader's path, is ignored."""
    libraries.nccl(4, path="site/torch/lib/libtorch_cuda.so")
    package = "import ctypes, pathlib\nhere = pathlib.Path(__file__).parent\n"
    package += 'ctypes.CDLL(str(here / "lib/libtorch_cuda.so"))\n'
    (libraries.root / "site/torch/__init__.py").write_text(package)
    libraries.monkeypatch.setenv("PYTHONPATH", str(libraries.root / "site"))
    libraries.plugin("amazon/ofi-nccl/lib/libnccl-net-ofi.so", 8)
    verdict = libraries.verdicts()["nccl_takes_the_plugin"]
    assert "libtorch_cuda.so) supports v4, so NCCL uses TCP" in verdict


@pytest.mark.parametrize(("number", "version"), [(2804, "2.8.4"), (20908, "2.9.8"), (23207, "2.32.7")])
def test_nccl_says_its_version_in_one_of_two_ways(
    libraries: FakeLibraries, number: int, version: str
) -> None:
    code = f"int ncclGetVersion(int *version) {{ *version = {number}; return 0; }}"
    library = libraries.library("other/libnccl.so.2", code)
    libraries.monkeypatch.setattr(ctypes, "CDLL", lambda name, real=ctypes.CDLL: real(str(library)))
    assert smoke("nccl").installed() == version


def test_nccl_is_compiled_only_on_a_base_that_has_a_compiler_for_it(
    recipe_directory: RecipeDirectory,
) -> None:
    assert "nvcc" in recipe_directory.answer(cuda("12.8.1", "24.04", 'nccl: "2.27.7"', flavour="base"))
    assert recipe_directory.resolve(cuda("12.8.1", "24.04", 'nccl: "2.27.7"')).version_of("nvcc") == "12.8.1"
