"""The script that downloads packages of the distribution, run with a fake of apt's download helper."""

import hashlib
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "templates" / "bin" / "download-debs"
HELPER = """\
#!/bin/sh
# download-file URL FILE SHA256 ...: copies the file at the URL's path, or prints an error as apt does
shift
while [ $# -gt 0 ]; do
    echo "$1" >> "$ASKED"
    cp "$SERVED/${1#*://}" "$2" 2> /dev/null || echo "Err:1 $1 File"
    shift 3
done
"""
GCC, VIM = b"gcc", b"vim"


class Step:
    """The files of a build step, and directories that act as servers."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.served, self.requests = directory, directory / "served", directory / "asked"
        self.packages = directory / "packages"
        self.packages.mkdir()
        self.requests.touch()
        helper = directory / "apt-helper"
        helper.write_text(HELPER)
        helper.chmod(0o755)
        text = SCRIPT.read_text().replace("/usr/lib/apt/apt-helper", str(helper))
        text = text.replace("/run/secrets/", f"{directory}/").replace("/etc/", f"{directory}/etc/")
        self.script = directory / "download-debs"
        self.script.write_text(text)

    def wants(self, *lines: tuple[bytes, str]) -> None:
        listing = "".join(f"{hashlib.sha256(data).hexdigest()} {rest}\n" for data, rest in lines)
        (self.directory / "list").write_text(listing)

    def serve(self, name: str, data: bytes) -> None:
        path = self.served / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def run(self) -> tuple[int, str]:
        """Return the exit status and the output."""
        environment = {"PATH": "/usr/bin:/bin", "SERVED": str(self.served), "ASKED": str(self.requests)}
        command = ["sh", str(self.script), str(self.directory / "list"), str(self.packages)]
        result = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        return result.returncode, result.stdout

    @property
    def urls(self) -> list[str]:
        return self.requests.read_text().split()


@pytest.fixture
def step(tmp_path: Path) -> Step:
    return Step(tmp_path)


def test_each_file_comes_from_the_first_place_that_has_it(step: Step) -> None:
    sums = [hashlib.sha256(data).hexdigest() for data in (GCC, VIM)]
    step.wants((GCC, "pool/gcc.deb http://site.example"), (VIM, "pool/vim.deb"))
    (step.directory / "mirrors").write_text("http://mirror.example\n")
    (step.directory / "sources").write_text("deb http://apt.example/debian stable main\n")
    step.serve(f"mirror.example/{sums[0]}/gcc.deb", GCC)
    step.serve("apt.example/debian/pool/vim.deb", VIM)

    assert step.run() == (0, "")
    assert step.urls == [
        f"http://mirror.example/{sums[0]}/gcc.deb",
        f"http://mirror.example/{sums[1]}/vim.deb",
        "http://apt.example/debian/pool/vim.deb",
    ]
    assert sorted(path.name for path in step.packages.iterdir()) == ["gcc.deb", "vim.deb"]


def test_the_recorded_site_is_asked_last(step: Step) -> None:
    step.wants((GCC, "pool/gcc.deb http://site.example/ubuntu"))
    (step.directory / "sources").write_text("deb http://apt.example/debian stable main\n")
    step.serve("site.example/ubuntu/pool/gcc.deb", GCC)

    assert step.run() == (0, "")
    assert step.urls == ["http://apt.example/debian/pool/gcc.deb", "http://site.example/ubuntu/pool/gcc.deb"]


def test_errors_are_printed_without_credentials(step: Step) -> None:
    step.wants((GCC, "pool/gcc.deb http://site.example"))
    (step.directory / "mirrors").write_text("https://ann:s3cret@mirror.example\n")
    code, output = step.run()

    digest = hashlib.sha256(GCC).hexdigest()
    assert code == 1
    assert f"Err:1 https://mirror.example/{digest}/gcc.deb File\n" in output
    assert "Err:1 http://site.example/pool/gcc.deb File\n" in output
    assert output.endswith("download-debs: some packages are missing from all mirrors and apt sources\n")


def test_a_wrong_checksum_is_an_error(step: Step) -> None:
    step.wants((GCC, "pool/gcc.deb http://site.example"))
    step.serve("site.example/pool/gcc.deb", VIM)
    assert step.run()[0] == 1


def test_a_package_without_any_source_is_an_error(step: Step) -> None:
    step.wants((GCC, "pool/gcc.deb"))
    assert step.run()[1].endswith(
        "download-debs: some packages are missing from all mirrors and apt sources\n"
    )


def test_a_base_without_mirrors_asks_those_of_its_distribution(step: Step) -> None:
    """So that a plain `docker build` needs no secret; the base image itself names no mirror."""
    step.wants((GCC, "pool/main/gcc.deb"), (VIM, "pool/updates/main/vim.deb"))
    (step.directory / "etc").mkdir()
    (step.directory / "etc/os-release").write_text('NAME="D"\nHOME_URL="https://www.distribution.example/"\n')
    step.serve("deb.distribution.example/debian/pool/main/gcc.deb", GCC)
    step.serve("deb.distribution.example/debian-security/pool/updates/main/vim.deb", VIM)

    assert step.run() == (0, "")


def test_a_base_without_mirrors_asks_no_others_in_a_build_that_has_mirrors(step: Step) -> None:
    step.wants((GCC, "pool/gcc.deb"))
    (step.directory / "etc").mkdir()
    (step.directory / "etc/os-release").write_text('HOME_URL="https://www.distribution.example/"\n')
    (step.directory / "mirrors").write_text("http://mirror.example\n")

    assert step.run()[0] == 1
    assert [url for url in step.urls if "distribution.example" in url] == []
