"""The script for machines without a container engine: run here, in a small root file system."""

import hashlib
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from bakehouse.builder.verify import Outcome
from bakehouse.catalog.user_smoke import UserSmoke
from bakehouse.cluster.bare_machine import ARCHIVE, RESULTS, RootFileSystem, bare_script
from bakehouse.cluster.remote_smoke import RemoteSmoke, read_results
from bakehouse.cluster.smoke_report import SmokeReport
from bakehouse.errors import Location
from tests.support import plans
from tests.support.fake_engine import image
from tests.support.remote_smoke import remote

_LEFT_OUT = shutil.ignore_patterns(
    *("site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "ensurepip", "tkinter"),
    *(
        "__pycache__",
        "config-*",
        "turtledemo",
        "pydoc_data",
        "distutils",
        "*.a",
        "encodings.*",
        "unittest",
        "sqlite3",
    ),
)
_LIBRARY = re.compile(r"(/\S+) \(0x")


def make_root_archive(path: Path, files: dict[str, str]) -> str:
    """Write an archive with this Python, a shell and more files; return its sha256."""
    root = path.parent / "small-root"
    python, shell = Path(sys.executable).resolve(), Path("/bin/sh").resolve()
    library = sysconfig.get_path("stdlib")
    shutil.copytree(library, f"{root}{library}", ignore=_LEFT_OUT)
    modules = [*Path(f"{root}{library}").glob("lib-dynload/*.so")]
    for program in (python, shell, Path("/sbin/ldconfig")):
        _copy(program, root)
    for binary in (python, shell, *modules):
        listed = subprocess.run(["ldd", binary], capture_output=True, text=True, check=False).stdout
        for loaded in _LIBRARY.findall(listed):
            _copy(Path(loaded), root)
    for name, target in {"usr/bin/python3": python, "bin/sh": shell}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        if not (root / name).exists():
            (root / name).symlink_to(target)
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "tmp").mkdir()
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        archive.add(root, ".", filter=_as_root)
    shutil.rmtree(root)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _copy(path: Path, root: Path) -> None:
    target = Path(f"{root}{path}")
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
        target.chmod(0o755)


def _as_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    return member


pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(sys.platform != "linux", reason="needs the namespaces of Linux"),
]

NOBODY = 65534
CONFIG = {"config": {"Env": ["PATH=/usr/bin:/bin", "COLOUR=it's red"], "WorkingDir": "/work"}}
CHECKS = {
    "passes.py": """\
import os, pathlib, socket, sys
assert os.getuid() == 0
assert (os.environ["COLOUR"], os.getcwd()) == ("it's red", "/work")
assert "HERE" not in os.environ
assert pathlib.Path("/bakehouse/smoke.py").exists() and not pathlib.Path("/root/.pyenv/bin").exists()
assert [name for _, name in socket.if_nameindex()] == ["lo"]
with socket.create_server(("algo-1", 0)) as server:
    socket.create_connection(server.getsockname()).close()
pathlib.Path("/dev/shm/bakehouse-test").write_text("x")
pathlib.Path("/dev/null").write_text("x")
assert pathlib.Path("/proc/1/cmdline").read_bytes().startswith(b"python3\\0/bakehouse/smoke.py")
assert any(pathlib.Path("/sys").iterdir())
print("devices", os.environ["CUDA_VISIBLE_DEVICES"])
""",
    "fails.py": "print('the last line'); raise SystemExit(3)",
    "sleeps.py": "import time; time.sleep(60)",
    "gpus.py": """\
import os, pathlib
assert (os.environ["CUDA_DEVICE_ORDER"], os.environ["CUDA_VISIBLE_DEVICES"]) == ("PCI_BUS_ID", "0,2")
assert pathlib.Path("/usr/local/driver/libcuda.so.1").read_text() == "a driver"
assert [path.name for path in pathlib.Path("/usr/local/driver").iterdir()] == ["libcuda.so.1"]
assert pathlib.Path("/usr/bin/nvidia-smi").exists()
assert pathlib.Path("/etc/ld.so.cache").exists()
assert pathlib.Path("/dev/nvidia2").exists()
""",
}


@dataclass(frozen=True)
class Machine:
    """A directory with the script and the files of an image."""

    directory: Path
    sha256: str
    user: int

    def write(self, check: str, seconds: int = 60, **changed: object) -> RemoteSmoke:
        """Write the script, which runs one of CHECKS as the user's own test."""
        user = UserSmoke(check, 1, 1, "", (), (), "", 40, Location(Path("recipe.yaml"), 1, 1))
        tested = plans.changed(image(), smoke=user, entry_point=check)
        smoke = remote(**{"image": tested, "only": ("user_code",), **changed})
        root = RootFileSystem(self.sha256, json.dumps(CONFIG).encode())
        (self.directory / "smoke.sh").write_text(bare_script(smoke, root, seconds))
        return smoke

    def run(
        self, wrapper: tuple[str, ...] = (), variables: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        other: dict[str, Any] = {"user": self.user, "group": self.user, "extra_groups": []}
        return subprocess.run(
            [*wrapper, "sh", self.directory / "smoke.sh"],
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            env={"PATH": os.environ["PATH"], "HERE": "1", **(variables or {})},
            **(other if self.user != os.geteuid() else {}),
        )

    def report(self, smoke: RemoteSmoke) -> SmokeReport:
        document = read_results((self.directory / RESULTS).read_text(), "the results")
        return smoke.report(document, self.directory / "logs", "bare", "bare")

    def refusal(self) -> str:
        """Return the error of the script, which ran nothing."""
        run = self.run()
        assert run.returncode == 1
        assert {path.name for path in self.directory.iterdir()} <= {ARCHIVE, "smoke.sh", "bin"}
        return run.stderr.replace(str(self.directory), "DIR")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    path = tmp_path_factory.mktemp("root") / ARCHIVE
    files = {f"opt/ml/code/{name}": text for name, text in CHECKS.items()}
    return path, make_root_archive(path, {**files, "work/here": "", "etc/ld.so.conf.d/x.conf": ""})


def machine_of(archive: tuple[Path, str], directory: Path, user: int) -> Machine:
    """Return a machine on which a user may make namespaces; skip the test elsewhere."""
    where = directory / "machine"
    where.mkdir()
    shutil.copy(archive[0], where / ARCHIVE)
    for path in (where, *where.iterdir()):
        os.chown(path, user, -1)
    for parent in where.parents:
        if user != os.geteuid() and not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)
    words = ["unshare", *(["--user", "--map-root-user"] if user else []), "--mount", "true"]
    if subprocess.run(words, user=user, capture_output=True, check=False).returncode:
        pytest.skip(f"the kernel refuses namespaces of user {user}")
    return Machine(where, archive[1], user)


@pytest.fixture(params=["root", "ordinary user"])
def machine(request: pytest.FixtureRequest, archive: tuple[Path, str], tmp_path: Path) -> Machine:
    if request.param == "root" and os.geteuid():
        pytest.skip("needs root")
    return machine_of(archive, tmp_path, 0 if request.param == "root" else os.geteuid() or NOBODY)


@pytest.fixture
def own(archive: tuple[Path, str], tmp_path: Path) -> Machine:
    """A machine of the user of this process."""
    return machine_of(archive, tmp_path, os.geteuid())


def test_a_check_runs_in_the_image_without_a_network(machine: Machine) -> None:
    smoke = machine.write("passes.py")

    run = machine.run()

    assert run.returncode == 0, run.stderr
    [check] = machine.report(smoke).checks
    assert (check.outcome, check.reason) == (Outcome.PASSED, "")
    assert "\ndevices \n" in run.stderr
    assert {path.name for path in machine.directory.iterdir()} == {ARCHIVE, "smoke.sh", RESULTS, "logs"}
    assert str(machine.directory) not in Path("/proc/self/mounts").read_text()
    assert not Path("/dev/shm/bakehouse-test").exists()


def test_a_check_that_fails_fails_the_report(machine: Machine) -> None:
    smoke = machine.write("fails.py")

    assert machine.run().returncode == 0

    [check] = machine.report(smoke).checks
    assert (check.outcome, check.exit.partition(" ")[0]) == (Outcome.FAILED, "3")
    assert check.tail == ("the last line",)


def test_checks_end_at_the_time_limit(own: Machine) -> None:
    smoke = own.write("sleeps.py", seconds=2)

    assert own.run().returncode == 1

    report = own.report(smoke)
    assert (report.interrupted, report.unfinished) == ("the time limit was reached", ("user_code",))
    assert report.checks == ()


def test_ctrl_c_ends_the_checks_and_keeps_their_results(own: Machine) -> None:
    smoke = own.write("sleeps.py")
    command = ["sh", str(own.directory / "smoke.sh")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stderr
        while "user_code started" not in process.stderr.readline():
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)
        process.communicate()

    assert process.returncode == 1
    report = own.report(smoke)
    assert (report.interrupted, report.unfinished) == ("stopped by SIGINT", ("user_code",))
    assert not [*own.directory.glob("root.*")]


def test_a_changed_archive_is_refused(own: Machine) -> None:
    own.write("passes.py")
    (own.directory / RESULTS).write_text("of an earlier run")
    with (own.directory / ARCHIVE).open("ab") as file:
        file.write(b"\0")

    assert own.refusal() == (
        "bakehouse: unpacking DIR/rootfs.tar.gz\n"
        "error: `DIR/rootfs.tar.gz` is damaged, or belongs to another script\n\n"
        "hint: copy all files of the directory again\n"
    )


def test_a_missing_archive_is_named(own: Machine) -> None:
    own.write("passes.py")
    (own.directory / ARCHIVE).unlink()

    assert own.refusal() == (
        "error: `DIR/rootfs.tar.gz` does not exist\n\nhint: copy all files of the directory\n"
    )


def test_a_kernel_that_refuses_namespaces_is_quoted(own: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    own.write("passes.py")
    stub(own.directory / "bin/unshare", "echo 'unshare: unshare failed: Operation not permitted' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{own.directory}/bin:{os.environ['PATH']}")

    assert own.refusal() == (
        "error: the kernel refused namespaces: unshare: unshare failed: Operation not permitted\n\n"
        "hint: run the script as root, or allow unprivileged user namespaces\n"
    )


def test_a_machine_with_too_few_gpus_is_refused(own: Machine) -> None:
    own.write("passes.py", gpus=999)
    count = len([*Path("/dev").glob("nvidia[0-9]*")])

    assert own.refusal() == (
        f"error: this machine has {count} of 999 GPUs, counted by /dev/nvidia<number>\n\n"
        "hint: choose another `--gpus`; without it, the checks that need GPUs are not tested\n"
    )


def test_without_gpus_the_checks_of_gpus_are_not_tested(own: Machine) -> None:
    checks = ("gpu", "nccl_all_reduce", "user_code")
    tested = image(gpu=True, launchers=("torchrun",), entry_point="passes.py")
    smoke = own.write("passes.py", image=tested, only=checks)

    assert own.run().returncode == 0

    report = own.report(smoke)
    assert {check.name: check.reason for check in report.checks} == {
        "gpu": "no GPU was given; use `--gpus`",
        "nccl_all_reduce": "no GPU was given; use `--gpus`",
        "user_code": "the recipe has no `smoke`",
    }
    assert {check.outcome for check in report.checks} == {Outcome.NOT_TESTED}


def test_checks_find_the_driver_and_the_selected_gpus(own: Machine) -> None:
    """With fake devices and a fake driver, which no check may take for GPUs."""
    smoke = own.write("gpus.py", gpus=2, gpu_ids=("0", "2"))
    run = on_fake_gpus(own, "libcuda.so.1 (libc6,x86-64) => {driver}", "libc.so.6 (libc6,x86-64) => /no")

    assert run.returncode == 0, run.stderr
    [check] = own.report(smoke).checks
    assert (check.outcome, check.reason) == (Outcome.PASSED, "")


def test_a_machine_without_the_driver_s_library_is_refused(own: Machine) -> None:
    own.write("gpus.py", gpus=2)

    run = on_fake_gpus(own, "libcuda.so.1 (libc6) => {driver}")

    assert run.returncode == 1
    assert run.stderr == (
        "error: `ldconfig -p` does not list libcuda.so.1 of the driver\n\n"
        "hint: install the driver of the GPUs\n"
    )


def on_fake_gpus(machine: Machine, *libraries: str) -> subprocess.CompletedProcess[str]:
    """Run the script where /dev has three GPUs, and the loader lists these libraries."""
    if os.geteuid():
        pytest.skip("needs root, for devices")
    programs = machine.directory / "bin"
    listed = "\n".join(libraries).format(driver=programs / "libcuda.so.570")
    stub(programs / "nvidia-smi", "exit 0")
    stub(programs / "ldconfig", f"echo '{listed}'")
    (programs / "libcuda.so.570").write_text("a driver")
    (programs / "dev/shm").mkdir(parents=True)
    numbers = {"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9, "nvidia0": 3, "nvidia1": 3}
    for name, number in {**numbers, "nvidia2": 3}.items():
        os.mknod(programs / "dev" / name, stat.S_IFCHR | 0o666, os.makedev(1, number))
    mount = f'mount --bind {programs}/dev /dev; exec "$@"'
    path = f"{programs}:{os.environ['PATH']}"
    return machine.run(("unshare", "--mount", "sh", "-ec", mount, "sh"), {"PATH": path})


def stub(path: Path, script: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_shellcheck_accepts_the_script(tmp_path: Path) -> None:
    root = RootFileSystem("0" * 64, json.dumps(CONFIG).encode())
    (tmp_path / "smoke.sh").write_text(bare_script(replace(remote(), gpus=2), root, 60))

    program = Path(sys.executable).with_name("shellcheck")
    run = subprocess.run([program, tmp_path / "smoke.sh"], capture_output=True, text=True, check=False)
    assert (run.stdout, run.returncode) == ("", 0)
