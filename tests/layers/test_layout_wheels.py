"""The script that lays out wheels: the files are those of pip, and damaged wheels are refused."""

import ast
import base64
import contextlib
import csv
import hashlib
import io
import random
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.util.oci import EPOCH
from tests.support.errors import raised
from tests.support.scripts import load_script

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
SITE = f"opt/venv/lib/python{PYTHON}/site-packages"
Files = dict[str, tuple[bytes, int]]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script(HOME / "templates/bin/layout-wheels")


def write_wheel(
    directory: Path,
    name: str = "demo",
    files: Mapping[str, tuple[bytes, int]] = {},
    *,
    record: Mapping[str, str] = {},
    unlisted: tuple[str, ...] = (),
) -> Path:
    """A wheel of contents with modes; `record` has wrong hashes, `unlisted` files are not in its RECORD."""
    info = f"{name}-1.0.dist-info"
    contents: Files = {
        f"{name}.py": (b"value = 1\n", 0o644),
        **files,
        f"{info}/METADATA": (f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(), 0o644),
        f"{info}/WHEEL": (b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n", 0o644),
    }
    rows = io.StringIO()
    for path, (content, _) in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        if path not in unlisted:
            csv.writer(rows).writerow([path, record.get(path, f"sha256={digest}"), len(content)])
    contents[f"{info}/RECORD"] = (f"{rows.getvalue()}{info}/RECORD,,\n".encode(), 0o644)
    directory.mkdir(parents=True, exist_ok=True)
    wheel = directory / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, (content, mode) in contents.items():
            member = zipfile.ZipInfo(path)
            member.compress_type = zipfile.ZIP_DEFLATED
            member.external_attr = (0o100000 | mode) << 16
            archive.writestr(member, content)
    return wheel


def generated(directory: Path, number: int) -> Path:
    """A wheel with some of all that pip treats in its own way."""
    choose, name = random.Random(number), f"pkg{number}"
    data, info = f"{name}-1.0.data", f"{name}-1.0.dist-info"
    script = choose.choice([b"#!python\nprint(1)\n", b"#!pythonw -x\nprint(2)\n", b"#!/bin/sh\n", b"\0"])
    deep = "/".join(["a" * choose.randint(1, 90)] * choose.randint(1, 4))
    points = "[console_scripts]\nRun-{0} = {0}.cli:main.run [extra]\n\n[gui_scripts]\nwin{0}={0}:main\n"
    choices: list[tuple[str, bytes]] = [
        (f"{name}/__init__.py", b"def main(): ...\n" * choose.randint(0, 50)),
        (f"{name}/{deep}/module.py", b"x = 1\n"),
        (f"{name}/données/é.txt", "é".encode()),
        (f"{name}/__pycache__/old.cpython-311.pyc", b"old"),
        (f"{name}/lib.a", b"!<arch>\n"),
        (f"{name}/program", b"\x7fELF"),
        (f"{name}.pth", b"import sys\n"),
        (f"namespace/{name}.py", b""),
        (f"{data}/scripts/{name}-script", script),
        (f"{data}/scripts/Run-{name}", b"#!python\n# replaced by the entry point\n"),
        (f"{data}/data/share/{name}/x", bytes(choose.randint(0, 2000))),
        (f"{data}/headers/{name}.h", b"#pragma once\n"),
        (f"{data}/platlib/{name}_native.so", b"\x7fELF"),
        (f"{info}/entry_points.txt", points.format(name).encode()),
        (f"{info}/INSTALLER", b"another\n"),
    ]
    files = {path: (content, choose.choice([0o644, 0o755, 0o600])) for path, content in choices}
    files = {path: file for path, file in files.items() if choose.random() < 0.7}
    unlisted = tuple(path for path in files if choose.random() < 0.1)
    return write_wheel(directory, name, files, unlisted=unlisted)


def tree(root: Path) -> Files:
    """The files below a directory, apart from those of an empty environment."""
    paths = (path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    files = {str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mode & 0o777) for path in paths}
    return {path: file for path, file in files.items() if "ctivate" not in path and not path.endswith(".cfg")}


def without_removed(files: Files) -> Files:
    """Installed files without those that layers leave out, and each RECORD as its sorted paths."""
    kept = {
        path: file
        for path, file in files.items()
        if not path.endswith((".a", "direct_url.json")) and "__pycache__" not in path
    }
    for path, (content, mode) in kept.items():
        if path.endswith("RECORD"):
            rows = csv.reader(io.StringIO(content.decode(), newline=""))
            names = (".a", "direct_url.json", ".pyc")
            # pip keeps the row of a script that an entry point replaced
            listed = {row[0] for row in rows if not row[0].endswith(names) and ".data/" not in row[0]}
            kept[path] = (repr(sorted(listed)).encode(), mode)
    return kept


def test_the_syntax_is_that_of_python_3_6() -> None:
    ast.parse((HOME / "templates/bin/layout-wheels").read_text(), feature_version=(3, 6))


def test_files_and_modes_are_those_of_pip(tmp_path: Path, script: ModuleType) -> None:
    wheels = [generated(tmp_path / "wheels", number) for number in range(25)]
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    pip: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        venv / "bin/python",
        "install",
        "--no-index",
        "--no-deps",
    ]
    subprocess.run([*pip, "--no-compile", "--quiet", "--no-warn-script-location", *wheels], check=True)

    laid_out = [script.Wheel(wheel, script.Place(str(venv), PYTHON, ())) for wheel in wheels]
    script.check_owners(laid_out)
    script.write_tree(tmp_path / "out", laid_out, "list", EPOCH)

    ours = tree(tmp_path / "out" / str(venv).lstrip("/"))
    assert without_removed(ours) == without_removed(tree(venv))


def test_a_record_has_the_sum_and_size_of_each_file(tmp_path: Path, script: ModuleType) -> None:
    for number in range(12):
        wheel = script.Wheel(generated(tmp_path, number), script.Place("/opt/venv", PYTHON, ()))
        root = tmp_path / f"out{number}"
        script.write_tree(root, [wheel], "list", EPOCH)
        [record] = root.rglob("RECORD")
        rows = [*csv.reader(io.StringIO(record.read_text(), newline=""))]
        installed = {path.resolve() for path in (root / "opt").rglob("*") if path.is_file()}
        assert {(root / SITE / row[0]).resolve() for row in rows} == installed
        for name, digest, size in rows:
            if name != str(record.relative_to(root / SITE)):
                content = (root / SITE / name).read_bytes()
                expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                assert (digest, int(size)) == (f"sha256={expected}", len(content))


def test_a_layer_has_the_files_of_the_tree(tmp_path: Path, script: ModuleType) -> None:
    wheels = [
        script.Wheel(generated(tmp_path / "wheels", number), script.Place("/opt/venv", PYTHON, ()))
        for number in range(15)
    ]
    script.write_tree(tmp_path / "out", wheels, "list", EPOCH)
    layer = io.BytesIO()
    script.write_layer(layer, wheels, "list", EPOCH)
    again = io.BytesIO()
    script.write_layer(again, [*reversed(wheels)], "list", EPOCH)
    assert again.getvalue() == layer.getvalue()
    with tarfile.open(fileobj=io.BytesIO(layer.getvalue())) as archive:
        archive.extractall(tmp_path / "unpacked", filter="fully_trusted")
        members = archive.getmembers()
    assert tree(tmp_path / "unpacked") == tree(tmp_path / "out")
    assert {member.mtime for member in members} == {EPOCH}
    assert [member.name.split("/") for member in members] == sorted(
        member.name.split("/") for member in members
    )


def test_a_trimmed_file_is_in_no_record(tmp_path: Path, script: ModuleType) -> None:
    files = {"demo/tests/a.py": (b"", 0o644), "demo/lib.a": (b"", 0o644), "demo/kept.a": (b"", 0o644)}
    patterns = ("opt/venv/lib/python*/site-packages/*/tests", "!**/kept.a", "opt/unused")
    wheel = script.Wheel(write_wheel(tmp_path, files=files), script.Place("/opt/venv", PYTHON, patterns))
    assert [path for path in wheel.entries if "/demo/" in path] == [f"{SITE}/demo/kept.a"]
    record = wheel.entries[f"{SITE}/demo-1.0.dist-info/RECORD"].data
    assert b"demo/kept.a" in record
    assert b"tests" not in record
    # A pattern of a component that no wheel uses is an error
    assert {*patterns} - wheel.used == {"opt/unused"}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"../outside.py": b""}, "has a file with the name '../outside.py'"),
        ({"/etc/passwd": b""}, "has a file with the name '/etc/passwd'"),
        ({"a\nb.py": b""}, "has a file with the name 'a\\nb.py'"),
        ({"demo-1.0.data/data/bin/python3": b""}, "would replace /opt/venv/bin/python3 of the image"),
        ({"demo-1.0.data/scripts/python": b""}, "would replace /opt/venv/bin/python of the image"),
        ({"demo-1.0.data/scripts/activate": b""}, "would replace /opt/venv/bin/activate of the image"),
        ({"demo-1.0.data/data/pyvenv.cfg": b""}, "would replace /opt/venv/pyvenv.cfg of the image"),
        ({"demo-1.0.data/data/lib64/x": b""}, "would replace /opt/venv/lib64/x of the image"),
        ({"demo-1.0.data/other/x": b""}, "has an unexpected file demo-1.0.data/other/x"),
        ({"other-1.0.dist-info/x": b""}, "has 2 directories .dist-info"),
        (
            {"demo-1.0.dist-info/entry_points.txt": b"[console_scripts]\nrun = demo\n"},
            "has an invalid entry point run = demo",
        ),
        ({"demo/big.bin": bytes(80 << 20)}, "unpacks to 83,886,"),
    ],
)
def test_a_wheel_is_refused(
    tmp_path: Path, script: ModuleType, files: dict[str, bytes], message: str
) -> None:
    wheel = write_wheel(tmp_path, files={path: (content, 0o644) for path, content in files.items()})
    error = raised(script.LayoutError, script.Wheel, wheel, script.Place("/opt/venv", PYTHON, ()))
    assert str(error).startswith(f"demo-1.0-py3-none-any.whl {message}")


def test_another_version_than_the_locked_one_is_refused(tmp_path: Path, script: ModuleType) -> None:
    wheel = script.Wheel(write_wheel(tmp_path), script.Place("/opt/venv", PYTHON, ()))
    script.check_version(wheel, "1.0.0")
    with pytest.raises(script.LayoutError, match=r"contains version 1\.0, but 1\.1 is locked"):
        script.check_version(wheel, "1.1")


def test_a_file_that_differs_from_its_record_is_refused(tmp_path: Path, script: ModuleType) -> None:
    wheel = write_wheel(tmp_path, record={"demo.py": f"sha256={'A' * 43}"})
    laid_out = script.Wheel(wheel, script.Place("/opt/venv", PYTHON, ()))
    with pytest.raises(script.LayoutError, match=r"whl has another demo\.py than its RECORD states"):
        script.write_layer(io.BytesIO(), [laid_out], "list", EPOCH)


def test_a_script_that_differs_from_its_record_is_installed(tmp_path: Path, script: ModuleType) -> None:
    name = "demo-1.0.data/scripts/activate-demo"
    wheel = write_wheel(tmp_path, files={name: (b"#!/bin/sh\n", 0o755)}, record={name: f"sha256={'A' * 43}"})
    laid_out = script.Wheel(wheel, script.Place("/opt/venv", PYTHON, ()))
    script.write_tree(tmp_path / "out", [laid_out], "list", EPOCH)
    assert (tmp_path / "out/opt/venv/bin/activate-demo").read_bytes() == b"#!/bin/sh\n"


def test_damaged_archives_are_layout_errors(tmp_path: Path, script: ModuleType) -> None:
    content = generated(tmp_path, 7).read_bytes()
    choose, damaged = random.Random(1), tmp_path / "pkg7-1.0-py3-none-any.whl"
    for _ in range(150):
        position = choose.randrange(len(content))
        damaged.write_bytes(content[:position] + bytes([choose.randrange(256)]) + content[position + 1 :])
        with contextlib.suppress(script.LayoutError):
            wheel = script.Wheel(damaged, script.Place("/opt/venv", PYTHON, ()))
            script.write_layer(io.BytesIO(), [wheel], "list", EPOCH)


def test_two_wheels_with_one_path_are_an_error_with_both_names(tmp_path: Path, script: ModuleType) -> None:
    place = script.Place("/opt/venv", PYTHON, ())

    def conflict(first: bytes, second: bytes, other: str = "shared/__init__.py") -> str:
        one = write_wheel(tmp_path, "one", {"shared/__init__.py": (first, 0o644)})
        two = write_wheel(tmp_path, "two", {other: (second, 0o644)})
        try:
            script.check_owners([script.Wheel(one, place), script.Wheel(two, place)])
        except script.LayoutError as error:
            return str(error)
        return ""

    names = "one-1.0-py3-none-any.whl and two-1.0-py3-none-any.whl"
    assert conflict(b"", b"") == ""
    assert conflict(b"", b"x") == f"{names} have different files /{SITE}/shared/__init__.py"
    assert conflict(b"", b"", "shared/__init__.py/x") == (
        f"one-1.0-py3-none-any.whl has a file /{SITE}/shared/__init__.py,"
        " which is a directory in two-1.0-py3-none-any.whl"
    )


def test_byte_code_is_that_of_py_compile(tmp_path: Path, script: ModuleType) -> None:
    files = {
        "demo/good.py": (b"def f(): return 'a' * 3\n", 0o644),
        "demo/bad.py": (b"print 1\n", 0o644),
        "demo/null.py": (b"\0", 0o644),
        "demo/tests/test_x.py": (b"", 0o644),
        "demo/large.py": (b"#" * (script.MAX_SOURCE + 1), 0o644),
        "demo-1.0.data/data/share/x.py": (b"", 0o644),
    }
    wheel = script.Wheel(write_wheel(tmp_path, files=files), script.Place("/opt/venv", PYTHON, ()))
    script.write_tree(tmp_path / "files", [wheel], "list", EPOCH)
    command: list[str | Path] = [
        sys.executable,
        "-I",
        "-S",
        HOME / "templates/bin/layout-wheels",
        "--compile",
    ]
    text = "\n".join(script.sources(wheel)).encode()
    subprocess.run([*command, tmp_path / "files", tmp_path / "code", "/dev/stdin"], input=text, check=True)
    codes = sorted(str(path.relative_to(tmp_path / "code")) for path in (tmp_path / "code").rglob("*.pyc"))
    tag = sys.implementation.cache_tag
    assert codes == [f"{SITE}/__pycache__/demo.{tag}.pyc", f"{SITE}/demo/__pycache__/good.{tag}.pyc"]
    program = (
        "import py_compile, sys\n"
        "mode = py_compile.PycInvalidationMode.UNCHECKED_HASH\n"
        "py_compile.compile(*sys.argv[1:], invalidation_mode=mode)"
    )
    source, expected = tmp_path / "files" / SITE / "demo/good.py", tmp_path / "expected.pyc"
    command = [sys.executable, "-I", "-S", "-c", program, source, expected, f"/{SITE}/demo/good.py"]
    subprocess.run(command, check=True)
    assert (tmp_path / "code" / codes[1]).read_bytes() == (tmp_path / "expected.pyc").read_bytes()


def test_a_compiler_that_needs_too_much_memory_is_an_error(tmp_path: Path) -> None:
    source = (HOME / "templates/bin/layout-wheels").read_text()
    limited = tmp_path / "layout-wheels"
    limited.write_text(source.replace("COMPILE_MEMORY = 3 << 30", "COMPILE_MEMORY = 200 << 20"))
    (tmp_path / "zeros.py").write_text("x = [" + "0," * 900_000 + "]\n")
    result = subprocess.run(
        [sys.executable, "-I", "-S", limited, "--compile", tmp_path, tmp_path / "code", "/dev/stdin"],
        input=b"zeros.py",
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert result.returncode != 0
    assert b"MemoryError" in result.stderr
