"""Imports of the packages that requirements name, in an environment of small packages."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import packaging
import pytest

from bakehouse.builder import verify

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


class Environment:
    """A directory of installed packages, and the probe as it is in a container."""

    def __init__(self, directory: Path) -> None:
        self.site, self.probe = directory / "site-packages", directory / "smoke"
        self.site.mkdir()
        self.probe.mkdir()
        shutil.copy(verify.PROBES / "imports.py", self.probe / "requirements.py")
        shutil.copy(verify.PROBES / "libraries.py", self.probe)
        shutil.copytree(Path(packaging.__file__).parent, self.probe / "probe_packaging")
        self.required: list[dict[str, str]] = []

    def package(self, name: str, files: dict[str, str], version: str = "1.0", top_level: str = "") -> None:
        info = f"{name.replace('-', '_')}-{version}.dist-info"
        texts = {**files, f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"}
        if top_level:
            texts[f"{info}/top_level.txt"] = top_level
        else:
            texts[f"{info}/RECORD"] = "".join(f"{file},,\n" for file in texts)
        for file, text in texts.items():
            path = self.site / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def require(self, name: str, marker: str = "", untested: str = "") -> None:
        source = f"requirements.txt:{len(self.required) + 1}"
        self.required.append({"name": name, "marker": marker, "source": source, "untested": untested})

    def run(self) -> dict[str, dict[str, str]]:
        """Return the answers by package."""
        (self.probe / "requirements.json").write_text(json.dumps(self.required))
        command = [sys.executable, str(verify.PROBES / "checks.py"), "--checks"]
        process = subprocess.run(
            [*command, f"requirements={self.probe / 'requirements.py'}"],
            env={**os.environ, "PYTHONPATH": str(self.site)},
            capture_output=True,
            text=True,
            check=True,
        )
        self.log = process.stderr
        return {
            answer["check"]: answer
            for answer in map(json.loads, process.stdout.splitlines())
            if answer.get("outcome", "started") != "started"
        }

    def outcome(self, text: str) -> str:
        """Return the reason why a package with this module cannot be imported."""
        self.package("broken", {"broken.py": text})
        self.require("broken")
        answer = self.run()["broken"]
        assert answer["outcome"] == "failed"
        return answer["reason"]


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path)


def probe() -> ModuleType:
    spec = importlib.util.spec_from_file_location("imports", verify.PROBES / "imports.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["imports"] = module
    spec.loader.exec_module(module)
    return module


def test_each_package_is_imported(environment: Environment) -> None:
    environment.package("two-modules", {"first.py": "print('hello')\n", "second/__init__.py": ""})
    environment.require("two-modules")

    answer = environment.run()["two-modules"]

    assert answer["outcome"] == "passed"
    assert answer["reason"].startswith("imported in ")
    assert answer["reason"].endswith(" s: first, second")
    assert answer["source"] == "requirements.txt:1"


def test_a_second_module_can_fail(environment: Environment) -> None:
    environment.package("two-modules", {"first.py": "", "second/__init__.py": "raise OSError('broken')\n"})
    environment.require("two-modules")

    assert environment.run()["two-modules"]["reason"] == (
        "`two-modules` (module `second`) cannot be imported: OSError: broken; ask for another version of it"
    )


def test_a_failure_has_its_own_part_of_the_log(environment: Environment) -> None:
    for name in ("one", "other"):
        environment.package(name, {f"{name}.py": f"raise ValueError('{name} fails')\n"})
        environment.require(name)

    environment.run()

    section = environment.log.partition("--- requirements.one\n")[2].partition("\n--- ")[0]
    assert section.endswith("ValueError: one fails")
    assert "other" not in section


@pytest.mark.parametrize(
    ("name", "files", "reason"),
    [
        ("data-only", {"data_only/data.txt": "1"}, "its metadata lists no modules"),
        ("for-tests", {"tests/__init__.py": "raise OSError\n"}, "its metadata lists no modules"),
    ],
)
def test_a_package_without_modules_is_not_tested(
    name: str, files: dict[str, str], reason: str, environment: Environment
) -> None:
    environment.package(name, files)
    environment.require(name)

    answer = environment.run()[name]

    assert (answer["outcome"], answer["reason"]) == ("not tested", reason)


def test_an_exempted_package_is_not_tested(environment: Environment) -> None:
    environment.package("needs-gpu", {"needs_gpu.py": "raise OSError\n"})
    environment.require("needs-gpu", untested="needs a GPU")

    answer = environment.run()["needs-gpu"]

    assert (answer["outcome"], answer["reason"]) == ("not tested", "the recipe says: needs a GPU")


def test_a_requirement_for_another_platform_does_not_apply(environment: Environment) -> None:
    environment.package("here", {"here.py": ""})
    environment.require("here", marker='python_version > "3"')
    environment.require("elsewhere", marker='sys_platform == "win32"')

    assert [*environment.run()] == ["here", "elsewhere"]
    assert environment.run()["elsewhere"]["outcome"] == "not applicable"


def test_a_package_that_is_not_installed_fails(environment: Environment) -> None:
    environment.require("absent")

    assert environment.run()["absent"]["reason"] == (
        "`absent` cannot be imported: it is not installed; check the lock and the steps of `run`"
    )


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (
            "import no_such_module",
            "the module `no_such_module` is missing, and `broken` does not require a package that has it; "
            "add the package that contains `no_such_module` to the requirements",
        ),
        (
            "raise ImportError('libGL.so.1: cannot open shared object file: No such file or directory')",
            "the library `libGL.so.1` is missing; add the package that contains it to the recipe: "
            "on Debian usually `packages: {apt: [libgl1]}`",
        ),
        (
            "raise ImportError('/opt/venv/x.so: undefined symbol: _ZN3c10')",
            "`x.so` was compiled for another version of a library: `_ZN3c10` is undefined; "
            "ask for a release that was compiled for the versions in this image",
        ),
        (
            'raise ImportError("/lib/libc.so.6: version `GLIBC_2.38\' not found (required by x.so)")',
            "`libc.so.6` does not have GLIBC_2.38, which an extension needs; "
            "ask for a release that was compiled for this image",
        ),
        (
            "import numpy\nraise ValueError('numpy.dtype size changed, may indicate binary incompatibility')",
            "an extension that it needs was compiled for NumPy 1, but NumPy 2.1.0 is installed; "
            "ask for `numpy<2`, or for a release of `broken` made for NumPy 2",
        ),
        (
            "import sys\nsys.stderr.write('A module that was compiled using NumPy 1.x cannot be run in\\n')",
            "an extension that it needs was compiled for NumPy 1, but NumPy 2.1.0 is installed; "
            "ask for `numpy<2`, or for a release of `broken` made for NumPy 2",
        ),
        (
            "from numpy import float_",
            "`numpy` of numpy 2.1.0 has no `float_`; "
            "ask for another version of `numpy`, or for a newer `broken`",
        ),
        (
            "import numpy\nnumpy.bool8",
            "`numpy` of numpy 2.1.0 has no `bool8`; "
            "ask for another version of `numpy`, or for a newer `broken`",
        ),
        (
            "import numpy.compat",
            "`numpy` has no module `numpy.compat` in version 2.1.0; "
            "ask for another version of `numpy`, or for a newer `broken`",
        ),
        (
            "raise RuntimeError('No CUDA GPUs are available')",
            "RuntimeError: No CUDA GPUs are available; "
            "if it needs hardware, write `untested_imports: {broken: REASON}` in the recipe",
        ),
        (
            "import os\nos.kill(os.getpid(), 11)",
            "Python was killed by signal 11; ask for another version of it",
        ),
        ("import os\nos._exit(3)", "Python ended with code 3; ask for another version of it"),
        ("raise SystemExit", "SystemExit; ask for another version of it"),
    ],
)
def test_a_failure_names_the_cause_and_what_would_fit(
    module: str, reason: str, environment: Environment
) -> None:
    environment.package("numpy", {"numpy/__init__.py": "__version__ = '2.1.0'\n"}, "2.1.0")

    assert environment.outcome(module) == f"`broken` cannot be imported: {reason}"


@pytest.mark.parametrize(
    ("python", "name", "setuptools", "diagnosis"),
    [
        (
            "3.12",
            "imp",
            "",
            ("it imports `imp`, which Python 3.12 removed", "ask for a release of `old` for Python 3.12"),
        ),
        (
            "3.13",
            "distutils.util",
            "",
            (
                "it imports `distutils`, which Python 3.12 removed",
                "ask for `setuptools`, which provides it, or for a release of `old` for Python 3.13",
            ),
        ),
        (
            "3.11",
            "distutils",
            "",
            ("it imports `distutils`, which this Python lacks", "ask for `setuptools`, which provides it"),
        ),
        (
            "3.11",
            "tkinter",
            "",
            (
                "this Python lacks the standard module `tkinter`",
                "add the Debian package with it to the recipe: `packages: {apt: [python3-tk]}`",
            ),
        ),
        (
            "3.11",
            "pkg_resources",
            "",
            (
                "it imports `pkg_resources`, but setuptools is not installed",
                "ask for `setuptools<82`, which still has it, or for a newer `old`",
            ),
        ),
        (
            "3.11",
            "pkg_resources",
            "82.0.1",
            (
                "it imports `pkg_resources`, which setuptools 82.0.1 lacks",
                "ask for `setuptools<82`, which still has it, or for a newer `old`",
            ),
        ),
    ],
)
def test_a_standard_module_can_be_missing(
    python: str, name: str, setuptools: str, diagnosis: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    imports = probe()
    monkeypatch.setattr(imports.sysconfig, "get_python_version", lambda: python)
    monkeypatch.setattr(imports, "version_of", lambda package: setuptools)

    assert imports.missing_module("old", name) == diagnosis


def test_an_import_that_does_not_end_fails(environment: Environment) -> None:
    probe = environment.probe / "requirements.py"
    probe.write_text(probe.read_text().replace("SECONDS = 120.0", "SECONDS = 1.0"))

    reason = environment.outcome("import time\ntime.sleep(60)\n")

    assert reason == (
        "`broken` cannot be imported: the import did not end within 1 s; ask for another version of it"
    )


def test_packages_are_imported_at_once(environment: Environment) -> None:
    cores = 1
    if sys.platform == "linux":
        cores = len(os.sched_getaffinity(0))
    if cores < 2:
        pytest.skip("one core")
    # Each module waits for the others, so that none ends unless all are imported at once.
    meeting = (
        "import pathlib, time\n"
        "pathlib.Path(__file__).with_suffix('.started').touch()\n"
        f"while len([*pathlib.Path(__file__).parent.glob('*.started')]) < {cores}:\n"
        "    time.sleep(0.05)\n"
    )
    for number in range(cores):
        environment.package(f"slow{number}", {f"slow{number}.py": meeting})
        environment.require(f"slow{number}")

    answers = environment.run()

    assert [answer["outcome"] for answer in answers.values()] == ["passed"] * cores


def test_modules_of_a_namespace_are_found(environment: Environment) -> None:
    environment.package("cloud-part", {"cloud/part/__init__.py": "", "cloud/part/deep/__init__.py": ""})
    environment.package("listed", {"listed.py": ""}, top_level="listed\n_private\n")
    for name in ("cloud-part", "listed"):
        environment.require(name)

    answers = environment.run()

    assert answers["cloud-part"]["reason"].endswith(" s: cloud.part")
    assert answers["listed"]["reason"].endswith(" s: listed")


LOADS_THE_DRIVER = "import ctypes\nctypes.CDLL('libcuda.so.1')\n"


@pytest.mark.skipif(not shutil.which("gcc"), reason="gcc is not installed")
def test_a_stub_replaces_the_driver(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment.package("gpu-code", {"gpu_code.py": LOADS_THE_DRIVER})
    stub = ["gcc", "-shared", "-Wl,-soname,libcuda.so.1", "-o", str(tmp_path / "libcuda.so.1"), "-xc", "-"]
    subprocess.run(stub, input="int cuInit(void) { return 100; }\n", text=True, check=True)
    monkeypatch.setenv("PYTHONPATH", str(environment.site))
    imports = probe()

    answer, _, _ = imports.import_module("gpu_code")
    assert imports.needs_driver(answer)
    monkeypatch.setattr(imports, "stubs", lambda: str(tmp_path))
    assert imports.failure_of("gpu-code", "gpu_code") is None


def test_without_a_stub_a_package_for_gpus_is_not_tested(environment: Environment) -> None:
    environment.package("gpu-code", {"gpu_code.py": LOADS_THE_DRIVER})
    environment.require("gpu-code")
    reason = "the image has no C compiler to make a stub of the driver's libraries"
    libraries = f"import unittest\ndef gpu_extensions():\n    raise unittest.SkipTest({reason!r})\n"
    libraries += "write_stubs = None\n"
    (environment.probe / "libraries.py").write_text(libraries)

    answer = environment.run()["gpu-code"]

    assert (answer["outcome"], answer["reason"]) == ("not tested", reason)


@pytest.mark.parametrize(
    ("library", "package"),
    [
        ("libsndfile.so.1", "libsndfile1"),
        ("libSM.so.6", "libsm6"),
        ("libopenblas.so.0", "libopenblas0"),
        ("libmpich.so.12", "libmpich12"),
        ("libX11-xcb.so.1", "libx11-xcb1"),
        ("libdav1d.so", "libdav1d"),
        ("libtbb12.so.3", "libtbb12-3"),
    ],
)
def test_debian_names_packages_after_libraries(library: str, package: str) -> None:
    assert probe().apt(library) == f"on Debian usually `packages: {{apt: [{package}]}}`"
