"""The script of a step that fetches the distribution's files, run with apt's own helper played."""

import hashlib
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "templates" / "get-packages.sh"
HELPER = """\
#!/bin/sh
# download-file URL FILE SHA256 ...: what lies in a folder at the URL's path; else it is told as apt does
shift
while [ $# -gt 0 ]; do
    echo "$1" >> "$ASKED"
    cp "$SERVED/${1#*://}" "$2" 2> /dev/null || echo "Err:1 $1 File"
    shift 3
done
"""
GCC, VIM = b"gcc", b"vim"


class Step:
    """A step's files, and servers that are folders."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.served, self.asked = folder, folder / "served", folder / "asked"
        self.packages = folder / "packages"
        self.packages.mkdir()
        self.asked.touch()
        helper = folder / "apt-helper"
        helper.write_text(HELPER)
        helper.chmod(0o755)
        text = SCRIPT.read_text().replace("/usr/lib/apt/apt-helper", str(helper))
        text = text.replace("/run/secrets/", f"{folder}/").replace("/packages", str(self.packages))
        self.script = folder / "get-packages"
        self.script.write_text(text)

    def wants(self, *lines: tuple[bytes, str]) -> None:
        told = "".join(f"{hashlib.sha256(data).hexdigest()} {rest}\n" for data, rest in lines)
        (self.packages / "list").write_text(told)

    def serve(self, place: str, data: bytes) -> None:
        path = self.served / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def run(self) -> tuple[int, str]:
        """How it ended, and what it said."""
        environment = {"PATH": "/usr/bin:/bin", "SERVED": str(self.served), "ASKED": str(self.asked)}
        command = ["sh", str(self.script)]
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        return done.returncode, done.stdout

    @property
    def urls(self) -> list[str]:
        return self.asked.read_text().split()


@pytest.fixture
def step(tmp_path: Path) -> Step:
    return Step(tmp_path)


def test_each_file_comes_from_the_first_place_that_has_it(step: Step) -> None:
    sums = [hashlib.sha256(data).hexdigest() for data in (GCC, VIM)]
    step.wants((GCC, "pool/gcc.deb http://site.example"), (VIM, "pool/vim.deb"))
    (step.folder / "mirrors").write_text("http://mirror.example\n")
    (step.folder / "sources").write_text("deb http://apt.example/debian stable main\n")
    step.serve(f"mirror.example/{sums[0]}/gcc.deb", GCC)
    step.serve("apt.example/debian/pool/vim.deb", VIM)

    assert step.run() == (0, "")
    assert step.urls == [
        f"http://mirror.example/{sums[0]}/gcc.deb",
        f"http://mirror.example/{sums[1]}/vim.deb",
        "http://apt.example/debian/pool/vim.deb",
    ]
    assert sorted(path.name for path in step.packages.iterdir()) == ["gcc.deb", "list", "vim.deb"]


def test_the_site_that_had_a_file_is_the_last_place(step: Step) -> None:
    step.wants((GCC, "pool/gcc.deb http://site.example/ubuntu"))
    (step.folder / "sources").write_text("deb http://apt.example/debian stable main\n")
    step.serve("site.example/ubuntu/pool/gcc.deb", GCC)

    assert step.run() == (0, "")
    assert step.urls == ["http://apt.example/debian/pool/gcc.deb", "http://site.example/ubuntu/pool/gcc.deb"]


def test_what_all_places_said_is_told_without_their_logins(step: Step) -> None:
    step.wants((GCC, "pool/gcc.deb http://site.example"))
    (step.folder / "mirrors").write_text("https://ann:s3cret@mirror.example\n")
    code, said = step.run()

    digest = hashlib.sha256(GCC).hexdigest()
    assert code == 1
    assert f"Err:1 https://mirror.example/{digest}/gcc.deb File\n" in said
    assert "Err:1 http://site.example/pool/gcc.deb File\n" in said
    assert said.endswith("get-packages: no mirror and none of the apt sources has all of these files\n")


def test_a_file_with_other_bytes_is_refused(step: Step) -> None:
    step.wants((GCC, "pool/gcc.deb http://site.example"))
    step.serve("site.example/pool/gcc.deb", VIM)
    assert step.run()[0] == 1


def test_where_no_place_is_known_that_is_said(step: Step) -> None:
    step.wants((GCC, "pool/gcc.deb"))
    assert step.run()[1].endswith(
        "get-packages: no mirror and none of the apt sources has all of these files\n"
    )
