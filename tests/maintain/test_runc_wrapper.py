"""Wrapper of runc that gives build steps a fake clock."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bakehouse.maintain import runc_wrapper
from bakehouse.maintain.isolated_engine import FakeClock, compile_library


def bundle(directory: Path, *environment: str) -> Path:
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps({"process": {"env": environment, "args": ["true"]}}))
    return directory


def test_a_container_loads_the_library_and_keeps_what_it_was_reported(tmp_path: Path) -> None:
    runc_wrapper.set_clock(bundle(tmp_path, "PATH=/bin", "EMPTY="), "/usr/lib/clock.so")

    config = json.loads((tmp_path / "config.json").read_text())
    assert config["process"]["args"] == ["true"]
    assert {"PATH=/bin", "EMPTY=", "LD_PRELOAD=/dev/bakehouse-clock.so"} <= set(config["process"]["env"])
    (mount,) = config["mounts"]
    assert (mount["source"], mount["destination"]) == ("/usr/lib/clock.so", "/dev/bakehouse-clock.so")
    assert "ro" in mount["options"]


def test_what_an_image_loads_by_itself_is_still_loaded(tmp_path: Path) -> None:
    runc_wrapper.set_clock(bundle(tmp_path, "LD_PRELOAD=/opt/own.so"), "/usr/lib/clock.so")

    config = json.loads((tmp_path / "config.json").read_text())
    assert "LD_PRELOAD=/dev/bakehouse-clock.so /opt/own.so" in config["process"]["env"]


def test_only_the_steps_of_a_build_have_another_clock() -> None:
    """Containers are created, then started; BuildKit runs a step in one call."""
    assert runc_wrapper.bundle_of(["--root", "/run", "run", "--bundle", "/b", "--keep", "id"]) == Path("/b")
    assert runc_wrapper.bundle_of(["run", "--bundle=/b", "id"]) == Path("/b")
    assert runc_wrapper.bundle_of(["create", "--bundle", "/b", "id"]) is None
    assert runc_wrapper.bundle_of(["run", "id"]) == Path()
    assert runc_wrapper.bundle_of(["--root", "/run", "kill", "id", "9"]) is None


def test_the_program_for_an_engine_calls_the_real_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tmp_path / "real" / "runc"
    real.parent.mkdir()
    real.write_text('#!/bin/sh\necho "$@"\n')
    real.chmod(0o755)
    monkeypatch.setenv("PATH", str(real.parent), prepend=os.pathsep)
    monkeypatch.setattr("bakehouse.maintain.isolated_engine.compile_library", lambda library, days: None)
    bundle_path = bundle(tmp_path / "bundle")

    program = str(FakeClock(3).programs(tmp_path / "bin") / "runc")
    command = [program, "run", "--bundle", str(bundle_path), "id"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)

    assert result.stdout == f"run --bundle {bundle_path} id\n"
    assert "LD_PRELOAD" in (bundle_path / "config.json").read_text()


@pytest.fixture
def library(tmp_path: Path) -> Path:
    if not shutil.which("gcc"):
        pytest.skip("needs the program `gcc`")
    compile_library(tmp_path / "clock.so", 40)
    return tmp_path / "clock.so"


def python(library: Path, code: str) -> str:

    command = [sys.executable, "-I", "-S", "-c", code]
    environment = {"LD_PRELOAD": str(library)}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=60
    ).stdout


def test_a_program_is_reported_a_later_day(library: Path) -> None:
    reported = float(python(library, "import time; print(time.time())"))

    assert 0 <= reported - time.time() - 40 * 86400 + 60 < 120


def test_files_keep_the_kernels_time(library: Path, tmp_path: Path) -> None:
    python(library, f"open({str(tmp_path / 'made')!r}, 'w').close()")

    assert (tmp_path / "made").stat().st_mtime < time.time() + 3600


def test_sleeping_and_waiting_take_as_long_as_they_should(library: Path) -> None:
    """Each call uses another function of the C library; a wrong wrapper hangs or raises."""
    code = """
import multiprocessing, subprocess, threading, time
time.sleep(0.01)
print(threading.Event().wait(0.01), multiprocessing.Semaphore(0).acquire(timeout=0.01))
print(subprocess.Popen(["sleep", "0.05"]).wait(timeout=30))
"""
    assert python(library, code) == "False False\n0\n"
