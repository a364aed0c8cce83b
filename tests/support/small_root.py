"""A root file system of a few megabytes: this Python, a shell, and what they load."""

import hashlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

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
