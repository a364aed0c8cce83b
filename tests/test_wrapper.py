"""The wrapper script, with a Python on PATH that only records its arguments."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROGRAMS = (
    *(
        "awk",
        "bash",
        "cp",
        "dirname",
        "env",
        "flock",
        "grep",
        "mkdir",
        "readlink",
        "sed",
        "sh",
        "sha256sum",
        "sleep",
    ),
    *("tail", "tee"),
)
PYTHON = """\
#!/bin/sh
case "$*" in
    *version_info*) exit "${TOO_OLD:-0}" ;;
    -V) echo "Python 3.12.1" ;;
    *ensurepip*) exit "${NO_VENV:-0}" ;;
    "-m venv"*) sleep "${SLOW:-0}"; mkdir -p "$4/bin" "$4/site"; cp "$0" "$4/bin/python" ;;
    *"-m pip"*)
        echo "Collecting one==1.0"
        echo "Installing collected packages: one"
        if [ -n "${PIP_FAILS-}" ]; then echo "ERROR: No matching distribution for one==1.0"; exit 1; fi ;;
    *run_uv*) echo "uv failed" >&2; exit "${UV_FAILS:-0}" ;;
    *sysconfig*) echo "${0%/bin/python}/site" ;;
    "-P -c"*) shift 3; printf '%s\\n' "$PWD" "$@" ;;
esac
"""
VENV_CREATED = (
    "bake: making .venv with Python 3.12.1 from requirements.lock: once, in about 20 seconds\n"
    "bake: installing 1 packages\n"
)


class Checkout:
    """A directory with the wrapper and a lock, and a PATH with only the programs that the wrapper needs."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "a checkout"
        self.root.mkdir()
        shutil.copy(ROOT / "bake", self.root)
        (self.root / "requirements.lock").write_text("one==1.0 \\\n    --hash=sha256:00\n")
        self.programs = directory / "bin"
        self.programs.mkdir()
        for name in PROGRAMS:
            program = shutil.which(name)
            assert program
            (self.programs / name).symlink_to(program)
        self.add_python("python3")

    def add_python(self, name: str) -> None:
        path = self.programs / name
        path.write_text(PYTHON)
        path.chmod(0o755)

    def start(self, *arguments: str, bake: Path | None = None, **environment: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [bake or self.root / "bake", *arguments],
            cwd=self.programs.parent,
            env={"PATH": str(self.programs), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, bake: Path | None = None, **environment: str) -> tuple[int, str, str]:
        with self.start(*arguments, bake=bake, **environment) as process:
            out, err = process.communicate(timeout=30)
        return process.returncode, out, err


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_arguments_and_the_current_directory_are_handed_on(checkout: Checkout, tmp_path: Path) -> None:
    assert checkout.run("build", "pytorch-*", "--json") == (
        0,
        f"{tmp_path}\nbuild\npytorch-*\n--json\n",
        VENV_CREATED,
    )


def test_a_second_run_makes_nothing(checkout: Checkout) -> None:
    checkout.run()

    assert checkout.run("list") == (0, f"{checkout.root.parent}\nlist\n", "")


def test_a_lock_that_changed_is_installed(checkout: Checkout) -> None:
    checkout.run()
    (checkout.root / "requirements.lock").write_text("one==1.1 \\\n    --hash=sha256:01\n")

    assert checkout.run()[2] == VENV_CREATED


def test_a_half_made_venv_is_made_anew(checkout: Checkout) -> None:
    assert checkout.run(PIP_FAILS="yes")[0] == 1

    assert checkout.run() == (0, f"{checkout.root.parent}\n", VENV_CREATED)


def test_a_checkout_that_was_moved_gets_a_new_venv(checkout: Checkout) -> None:
    checkout.run()
    checkout.root = checkout.root.rename(checkout.root.with_name("moved"))

    assert checkout.run()[2] == VENV_CREATED
    assert (checkout.root / ".venv/site/bakehouse.pth").read_text() == f"{checkout.root}\n"


def test_it_can_be_called_through_a_link(checkout: Checkout, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(checkout.root / "bake")

    assert checkout.run("list", bake=link) == (0, f"{tmp_path}\nlist\n", VENV_CREATED)


def test_two_first_runs_make_one_venv(checkout: Checkout) -> None:
    with checkout.start(SLOW="0.5") as first, checkout.start(SLOW="0.5") as second:
        errors = sorted(process.communicate(timeout=30)[1] for process in (first, second))

    assert errors == [VENV_CREATED, "bake: waiting for another run that makes .venv\n"]


@pytest.mark.parametrize("shell", ["msys", "cygwin"])
def test_a_shell_of_windows_is_told_about_wsl2(checkout: Checkout, shell: str) -> None:
    assert checkout.run("list", OSTYPE=shell) == (
        1,
        "",
        "error: Bakehouse does not run on Windows itself\n"
        "\n"
        "hint: run `wsl --install`, then install Python and a container engine in WSL2 and run the command"
        " there\n",
    )
    assert not (checkout.root / ".venv").exists()


def test_the_first_python_that_is_new_enough_is_taken(checkout: Checkout) -> None:
    old = checkout.programs / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    checkout.add_python("python3.12")

    assert checkout.run()[2] == VENV_CREATED


def test_no_python_that_is_new_enough(checkout: Checkout) -> None:
    assert checkout.run(TOO_OLD="1") == (
        1,
        "",
        "error: no Python 3.11 or newer on PATH\n"
        "\n"
        "hint: install python3.11 or newer; on Debian and Ubuntu, also its python3-venv\n",
    )


def test_a_python_that_can_make_no_venv(checkout: Checkout) -> None:
    assert checkout.run(NO_VENV="1") == (
        1,
        "",
        f"error: {checkout.programs}/python3 has no venv module\n"
        "\n"
        "hint: install python3-venv (Debian, Ubuntu), or put a complete Python first on PATH\n",
    )


def test_a_venv_that_is_a_link_is_kept(checkout: Checkout, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine").touch()
    venv = checkout.root / ".venv"
    venv.symlink_to(other)

    assert checkout.run() == (
        1,
        "",
        f"error: {venv} is a symbolic link, not a directory\n\nhint: remove the link: rm {venv}\n",
    )
    assert (other / "mine").exists()


def test_uv_installs_and_pip_where_uv_fails(checkout: Checkout) -> None:
    making = VENV_CREATED.splitlines(keepends=True)[0]
    lock = checkout.root / "requirements.lock"
    lock.write_text("one==1.0 \\\n    --hash=sha256:00\nuv==1.0 \\\n    --hash=sha256:00\n")

    by_uv = f"{making}bake: installing 2 packages with uv\n"
    assert checkout.run() == (0, f"{checkout.root.parent}\n", by_uv)
    lock.write_text(lock.read_text() + "\n")
    by_pip = f"{by_uv}bake: installing 1 packages\n"
    assert checkout.run(UV_FAILS="2") == (0, f"{checkout.root.parent}\n", by_pip)


def test_pips_failure_is_shown(checkout: Checkout) -> None:
    code, out, err = checkout.run(PIP_FAILS="yes")

    assert (code, out) == (1, "")
    assert err == (
        f"{VENV_CREATED}"
        "    | Collecting one==1.0\n"
        "    | Installing collected packages: one\n"
        "    | ERROR: No matching distribution for one==1.0\n"
        "error: pip could not install requirements.lock\n"
        "\n"
        f"hint: read {checkout.root}/build/venv.log; check the indexes and proxies of pip's"
        " configuration\n"
    )


@pytest.mark.parametrize("script", ["bake", ".ci/run"])
def test_the_scripts_are_clean(script: str) -> None:
    shellcheck = shutil.which("shellcheck", path=f"{ROOT}/.venv/bin:{os.environ['PATH']}")
    if shellcheck is None:
        pytest.skip("needs shellcheck, which .venv brings")

    assert subprocess.run([shellcheck, ROOT / script], capture_output=True, text=True).stdout == ""


def test_the_lock_holds_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lists = (project["dependencies"], *project["optional-dependencies"].values())
    requirements = [text for texts in lists for text in texts]
    versions = dict(re.findall(r"(?m)^([a-z0-9-]+)==(\S+)", (ROOT / "requirements.lock").read_text()))

    unfit = [text for text in requirements if not _fits(Requirement(text), versions)]

    command = "uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --generate-hashes"
    assert unfit == [], f"run `{command} --no-header --no-annotate --only-binary :all: -o requirements.lock`"


def test_the_lock_holds_names_versions_and_hashes_only() -> None:
    line = re.compile(r"[a-z0-9-]+==\S+( ; [^\\]+)? \\|    --hash=sha256:[0-9a-f]{64}( \\)?")

    strange = [
        text for text in (ROOT / "requirements.lock").read_text().splitlines() if not line.fullmatch(text)
    ]

    assert strange == []


def _fits(requirement: Requirement, versions: dict[str, str]) -> bool:
    version = versions.get(canonicalize_name(requirement.name))
    return version is not None and requirement.specifier.contains(version)
