"""Listing what is installed: the script that looks, and what is made of its answer."""

import json
import os
from pathlib import Path

import pytest

from bakehouse.analysis.packages import Distribution, Installed, SystemPackage, list_installed, read
from bakehouse.errors import Diagnostic, PublishError
from bakehouse.probes import installed as inside
from tests.support.data import text_of
from tests.support.errors import raised
from tests.support.fake_engine import DIGEST, FakeEngine, Run, image

STATUS = text_of(__file__, "status")
LIBC = {"name": "libc6", "version": "2.36-9", "architecture": "amd64"}
FOUND = {
    "system": {"ID": "debian", "VERSION_ID": "12"},
    "debian": [{**LIBC, "name": "zlib1g"}, LIBC],
    "rpm": None,
    "python": [
        {"name": "six", "version": "1.17", "folder": "/b/site-packages"},
        {"name": "six", "version": "1.17", "folder": "/a/site-packages"},
    ],
}


def test_what_dpkg_has_removed_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside, "DPKG", tmp_path)
    (tmp_path / "status").write_text(STATUS)
    assert inside.debian() == [LIBC]


def test_a_package_may_have_a_file_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside, "DPKG", tmp_path)
    (tmp_path / "status.d").mkdir()
    (tmp_path / "status.d" / "libc6").write_text("Package: libc6\nVersion: 2.36-9\nArchitecture: amd64\n")
    (tmp_path / "status.d" / "libc6.md5sums").write_text("0123  /usr/lib/libc.so\n")
    assert inside.debian() == [LIBC]


def test_an_image_without_dpkg_has_no_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside, "DPKG", tmp_path)
    assert inside.debian() is None


def test_rpm_lists_packages_without_the_keys_that_sign_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "rpm"
    rows = r"jq\t1.7.1-49\tx86_64\nopenssl\t1:3.2.2-1\tx86_64\ngpg-pubkey\t7fa2af80-576db785\t(none)\n"
    program.write_text(f"#!/bin/sh\n[ \"$1 $2 $3\" = '--query --all --queryformat' ] && printf '{rows}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    assert inside.rpm() == [
        {"name": "jq", "version": "1.7.1-49", "architecture": "x86_64"},
        {"name": "openssl", "version": "1:3.2.2-1", "architecture": "x86_64"},
    ]


def test_an_image_without_rpm_has_no_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert inside.rpm() is None


def test_packages_of_rpm_are_read() -> None:
    jq = {"name": "jq", "version": "1.7.1-49", "architecture": "x86_64"}
    listed = read(json.dumps({**FOUND, "debian": None, "rpm": [jq]}))

    assert (listed.kind, listed.packages) == ("rpm", (SystemPackage("jq", "1.7.1-49", "x86_64"),))


def test_the_distributions_of_every_directory_of_packages_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    directory = str(Path(pytest.__file__).parent.parent)
    other = "/opt/other/lib/python3.8/dist-packages"
    walked: list[tuple[str, list[str], list[str]]] = [
        (directory, [], []),
        ("/usr/share", [], []),
        (other, [], []),
    ]
    monkeypatch.setattr(os, "walk", lambda top: walked if top == "/" else [])
    packages = inside.python()
    assert {"name": "pytest", "version": pytest.__version__, "folder": directory} in packages
    assert {package["folder"] for package in packages} == {directory}


def test_the_order_is_the_same_every_time() -> None:
    assert read(json.dumps(FOUND)) == Installed(
        system="debian",
        system_version="12",
        packages=(SystemPackage("libc6", "2.36-9", "amd64"), SystemPackage("zlib1g", "2.36-9", "amd64")),
        distributions=(Distribution("six", "1.17", ("/a/site-packages", "/b/site-packages")),),
    )


def test_a_container_of_the_digest_is_asked_without_network(tmp_path: Path) -> None:
    engine = FakeEngine(lambda _: Run(prints=json.dumps(FOUND)))
    assert list_installed(engine, image(), DIGEST, tmp_path / "log").system == "debian"
    [spec] = engine.specs
    assert (spec.image, spec.network, spec.command[0]) == (DIGEST, "none", "python3")


@pytest.mark.parametrize(
    ("run", "printed"),
    [
        (Run(exit_code=127), "exited with 127"),
        (Run(exit_code=None), "no answer within 300 s"),
        (Run(prints="Segmentation fault"), "the output is not a list of packages"),
        (Run(prints='{"python": []}'), "the output is not a list of packages"),
    ],
)
def test_an_image_that_can_not_be_listed(tmp_path: Path, run: Run, printed: str) -> None:
    error = raised(PublishError, list_installed, FakeEngine(lambda _: run), image(), DIGEST, tmp_path / "log")
    facts = (("answer", printed), ("full log", str(tmp_path / "log")))
    message = "the packages of image `mpi-cpu` cannot be listed"
    assert error.diagnostics == (Diagnostic(message, facts=facts),)


def test_the_script_prints_one_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(inside, "DPKG", tmp_path)
    monkeypatch.setattr(os, "walk", lambda _: [])
    inside.main()
    assert read(capsys.readouterr().out).packages is None
