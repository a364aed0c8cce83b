"""Verification of images: results of components, and errors for mismatches."""

import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import unittest
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from types import ModuleType

import pytest

from bakehouse.builder import verify
from bakehouse.builder.verify import CheckAnswer, Outcome, ProbeOptions, VersionResult
from bakehouse.catalog import secrets
from bakehouse.catalog.project import HOME
from bakehouse.catalog.recipe import Content
from bakehouse.cli.diagnostics import failure_text
from bakehouse.engine.protocol import ContainerSpec
from bakehouse.errors import BuildError
from bakehouse.plan.model import InstalledComponent
from bakehouse.plan.required_imports import RequiredImport
from bakehouse.util.oci import Digest
from tests.support import plans
from tests.support.catalogs import own_file
from tests.support.errors import raised
from tests.support.fake_engine import DIGEST, FakeEngine, Run, image

LOG = Path("components.log")
OTHER_DIGEST = Digest("sha256:" + "5e" * 32)


def smoke_file(directory: Path, name: str, text: str = "def installed(): return '1.0'\n") -> Path:
    path = directory / f"{name}.py"
    path.write_text(dedent(text))
    return path


def lines(*records: Mapping[str, object]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def ask_here(*arguments: str) -> list[dict[str, object]]:
    """Run the script of the containers."""
    command = [sys.executable, str(verify.PROBES / "checks.py"), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize(
    ("declared", "installed", "same"),
    [
        ("2.13.0", "2.13.0", True),
        ("2.13.0", "2.13.0+cpu", True),
        ("2.13.0+cu130", "2.13.0+cpu", False),
        ("2.13.0+cu130", "2.13.0", False),
        ("2.13", "2.13.0", True),
        ("3.1", "3.10", False),
        ("9.2p1", "9.2p1", True),
        ("9.2p1", "9.2p2", False),
        ("2.13.0", "2.12.1", False),
    ],
)
def test_versions_are_the_same_when_they_mean_the_same(declared: str, installed: str, same: bool) -> None:
    assert verify.same_version(declared, installed) is same


def test_what_a_component_prints_does_not_come_between_the_answers(tmp_path: Path) -> None:
    path = smoke_file(
        tmp_path, "noisy", "print('hello')\ndef installed():\n    print('again')\n    return '1.0'\n"
    )

    assert ask_here(f"noisy={path}") == [{"component": "noisy", "installed": "1.0"}]


def test_checks_run_only_when_asked(tmp_path: Path) -> None:
    path = smoke_file(tmp_path, "one", "def check_a(): raise RuntimeError('boom')\n")

    assert ask_here(f"one={path}") == [{"component": "one", "installed": None}]


def test_each_check_tells_how_it_ended_and_where(tmp_path: Path) -> None:
    path = smoke_file(
        tmp_path,
        "one",
        """\
        import unittest
        def check_good(): pass
        def check_bad():
            raise ValueError("boom")
        def check_absent():
            raise unittest.SkipTest("needs a GPU")
        def check_of_other_images():
            raise unittest.SkipTest("")
        """,
    )

    records = [record for record in ask_here("--checks", f"one={path}") if record.get("outcome") != "started"]

    for record in records[1:]:
        assert record.pop("seconds") is not None
    assert records == [
        {"component": "one", "installed": None},
        {"component": "one", "check": "good", "outcome": "passed", "reason": "", "line": 0},
        {"component": "one", "check": "bad", "outcome": "failed", "reason": "ValueError: boom", "line": 4},
        {"component": "one", "check": "absent", "outcome": "not tested", "reason": "needs a GPU", "line": 0},
        {
            **{"component": "one", "check": "of_other_images"},
            **{"outcome": "not applicable", "reason": "", "line": 0},
        },
    ]


def test_a_component_that_crashes_or_hangs_does_not_silence_the_others(tmp_path: Path) -> None:
    crash = smoke_file(tmp_path, "crash", "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    hang = smoke_file(tmp_path, "hang", "import time\ntime.sleep(60)\n")
    broken = smoke_file(tmp_path, "broken", "\nimport nowhere\n")
    good = smoke_file(tmp_path, "good")

    records = ask_here("--seconds", "5", *(f"{path.stem}={path}" for path in (crash, hang, broken, good)))

    assert records == [
        {"component": "crash", "ended": "killed by SIGSEGV"},
        {"component": "hang", "ended": "no answer within 5 s"},
        {"component": "broken", "error": "ModuleNotFoundError: No module named 'nowhere'", "line": 2},
        {"component": "good", "installed": "1.0"},
    ]


def test_each_part_gets_an_answer(tmp_path: Path) -> None:
    smoke = tmp_path / "smoke.py"
    parts = (
        InstalledComponent("a", "1.0", "", smoke),
        InstalledComponent("b", "1.0", "", smoke),
        InstalledComponent("c", "1.0", "", smoke),
        InstalledComponent("d", "1.0", ""),
    )
    printed = lines(
        {"component": "a", "installed": "1.0"}, {"component": "b", "error": "ImportError: no", "line": 3}
    )

    results = verify.read_results(parts, printed.splitlines(), 1.0, LOG)

    assert results.versions == (
        VersionResult("a", "1.0", "1.0", "", str(smoke), part="a"),
        VersionResult("b", "1.0", None, "ImportError: no", f"{smoke}:3", part="b"),
        VersionResult("c", "1.0", None, "no answer", "", part="c"),
        VersionResult("d", "1.0", part="d"),
    )
    assert [version.matches for version in results.versions] == [True, False, False, True]


def test_a_check_that_can_never_apply_to_the_image_is_not_reported(tmp_path: Path) -> None:
    printed = lines(
        {"component": "a", "installed": "1.0"},
        {"component": "a", "check": "gpu", "outcome": "started"},
        {"component": "a", "check": "gpu", "outcome": "not applicable"},
        {"component": "a", "check": "efa", "outcome": "started"},
        {"component": "a", "check": "efa", "outcome": "not tested", "reason": "no EFA device"},
    )
    parts = (InstalledComponent("a", "1.0", "", tmp_path / "smoke.py"),)

    results = verify.read_results(parts, printed.splitlines(), 1.0, LOG)

    assert [(check.check, check.outcome, check.reason) for check in results.checks] == [
        ("efa", Outcome.NOT_TESTED, "no EFA device")
    ]


def test_a_check_that_never_ended_failed_by_the_end_of_its_process(tmp_path: Path) -> None:
    smoke = tmp_path / "smoke.py"
    printed = lines(
        {"component": "a", "installed": "1.0"},
        {"component": "a", "check": "x", "outcome": "started"},
        {"component": "a", "ended": "killed by SIGSEGV"},
    )

    results = verify.read_results(
        (InstalledComponent("a", "1.0", "", smoke),), printed.splitlines(), 1.0, LOG
    )

    assert results.checks == (CheckAnswer("a", "x", Outcome.FAILED, "killed by SIGSEGV", 0.0, str(smoke)),)
    assert results.versions[0].matches


def test_smoke_files_are_asked_in_one_container_without_a_network(tmp_path: Path) -> None:
    parts = (
        InstalledComponent("a", "1.0", "", smoke_file(tmp_path, "a")),
        InstalledComponent("b", "1.0", ""),
    )
    engine = FakeEngine(lambda spec: Run(prints=lines({"component": "a", "installed": "1.0"})))

    verify.run_probes(
        engine, image(parts=parts), DIGEST, tmp_path / "log", ProbeOptions(with_checks=True, seconds=20)
    )

    (spec,) = engine.specs
    assert spec.command == (
        *("python3", "/run/bakehouse/checks.py", "--checks", "--seconds", "10.0"),
        # The files are looked at before a component's check can leave some
        "contents=/run/bakehouse/smoke/contents.py",
        "a=/run/bakehouse/smoke/a.py",
        "libraries=/run/bakehouse/smoke/libraries.py",
    )
    copies = ("probe_packaging/requirements.py", "pyelftools/elftools/elf/elffile.py")
    assert {path for path in spec.files if path.count("/") == 4 or path.endswith(copies)} == {
        "/run/bakehouse/smoke/a.py",
        "/run/bakehouse/smoke/contents.py",
        "/run/bakehouse/smoke/libraries.py",
        "/run/bakehouse/smoke/libraries.json",
        "/run/bakehouse/smoke/own_files.json",
        "/run/bakehouse/smoke/probe_secrets.py",
        *(f"/run/bakehouse/smoke/{name}" for name in copies),
    }
    assert json.loads(spec.files["/run/bakehouse/smoke/libraries.json"])["targets"] == {}
    assert spec.network == "none"


def test_imports_of_requirements_are_checked_with_their_lines(tmp_path: Path) -> None:
    def run(spec: ContainerSpec) -> Run:
        answer = {"component": "requirements", "check": "pandas", "source": "requirements.txt:1"}
        started, ended = {"outcome": "started"}, {"outcome": "failed", "reason": "broken", "line": 9}
        return Run(prints=lines({"component": "requirements"}, answer | started, answer | ended))

    engine = FakeEngine(run)
    required = RequiredImport("pandas", "", "requirements.txt:1", "")

    results = verify.run_probes(
        engine,
        replace(image(), requirements=(required,)),
        DIGEST,
        tmp_path / "log",
        ProbeOptions(with_checks=True),
    )

    [spec] = engine.specs
    assert "requirements=/run/bakehouse/smoke/requirements.py" in spec.command
    assert spec.files["/run/bakehouse/smoke/requirements.py"] == (verify.PROBES / "imports.py").read_bytes()
    assert json.loads(spec.files["/run/bakehouse/smoke/requirements.json"]) == [
        {"name": "pandas", "marker": "", "source": "requirements.txt:1", "untested": ""}
    ]
    assert results.checks == (
        CheckAnswer("requirements", "pandas", Outcome.FAILED, "broken", source="requirements.txt:1"),
    )


def test_the_check_for_secrets_gets_the_recipe_s_files(tmp_path: Path) -> None:
    engine = FakeEngine(lambda spec: Run(prints=lines()))
    files = (own_file("/opt/a"), own_file("/opt/b"))
    content = Content(files=files[:1], code=files[1:], allowed=("/opt/b",))

    verify.run_probes(
        engine,
        plans.changed(image(), content=content),
        DIGEST,
        tmp_path / "log",
        ProbeOptions(with_checks=True),
    )

    [spec] = engine.specs
    assert json.loads(spec.files["/run/bakehouse/smoke/own_files.json"]) == {
        "own": ["/opt/a", "/opt/b"],
        "allowed": ["/opt/b"],
    }


def test_a_check_gives_its_evidence(tmp_path: Path) -> None:
    text = "def check_files(): return 'files: 3'\ndef check_others(): return True\n"

    _, *answers = ask_here("--checks", f"a={smoke_file(tmp_path, 'a', text)}")

    results = [
        (answer["check"], answer["outcome"], answer["reason"]) for answer in answers if "reason" in answer
    ]
    assert results == [("files", "passed", "files: 3"), ("others", "passed", "")]


def test_a_long_check_runs_only_if_it_is_named(tmp_path: Path) -> None:
    text = "def check_short(): pass\ndef long_check_one(): return 'done'\ndef long_check_two(): pass\n"
    path = smoke_file(tmp_path, "a", text)

    _, *answers = ask_here("--checks", f"a={path}")
    _, *named = ask_here("--long", "one", f"a={path}")

    results = [(item["check"], item["outcome"], item["reason"]) for item in answers if "reason" in item]
    long = "it can take longer than 30 s; run it with `--check components.a.{}`"
    assert results == [
        ("short", "passed", ""),
        ("one", "not tested", long.format("one")),
        ("two", "not tested", long.format("two")),
    ]
    assert [(item["check"], item["outcome"], item["reason"]) for item in named if "reason" in item] == [
        ("one", "passed", "done")
    ]


def test_a_component_tells_what_it_brought(tmp_path: Path) -> None:
    text = "def installed(): return '1.0'\ndef provided(): return {'nccl': '2.29.7'}\n"

    assert ask_here(f"one={smoke_file(tmp_path, 'one', text)}") == [
        {"component": "one", "installed": "1.0", "provided": {"nccl": "2.29.7"}}
    ]


def test_what_a_component_brings_is_compared_as_exactly_as_it_answers(tmp_path: Path) -> None:
    provides = (("cuda", "13.0.3"), ("cudnn", "9.20"), ("nccl", "2.29.7"))
    parts = (InstalledComponent("torch", "2.13.0", "", smoke_file(tmp_path, "torch"), provides),)
    record: dict[str, object] = {
        "component": "torch",
        "installed": "2.13.0",
        "provided": {"cuda": "13.0", "nccl": "2.29.3"},
    }
    engine = FakeEngine(lambda spec: Run(prints=lines(record)))

    error = raised(BuildError, verify.verify_image, engine, image(parts=parts), DIGEST, tmp_path)

    [wrong] = error.diagnostics
    assert wrong.message == "`nccl` in image `mpi-cpu` does not have the declared version"
    assert ("declared", "2.29.7") in wrong.facts
    assert ("installed", "2.29.3") in wrong.facts


def test_another_version_than_declared_is_an_error(tmp_path: Path) -> None:
    smoke = smoke_file(tmp_path, "torch")
    part = InstalledComponent("torch", "2.13.0", "", smoke)
    engine = FakeEngine(lambda spec: Run(prints=lines({"component": "torch", "installed": "2.12.1"})))

    error = raised(BuildError, verify.verify_image, engine, image("pytorch-cpu", (part,)), DIGEST, tmp_path)

    assert failure_text(error.diagnostics[0]) == dedent(f"""\
        error: `torch` in image `pytorch-cpu` does not have the declared version
          image      pytorch-cpu sha256:4f4f4f4f4f4f
          declared   2.13.0
          installed  2.12.1
          from       {smoke}
          full log   {tmp_path}/verified/pytorch-cpu/components.log
        """)


def test_a_component_that_does_not_work_is_an_error(tmp_path: Path) -> None:
    smoke = smoke_file(tmp_path, "mpi4py")
    part = InstalledComponent("mpi4py", "4.1.2", "", smoke)
    error = "ImportError: libmpi.so.40: cannot open shared object file"
    printed = lines({"component": "mpi4py", "error": error, "line": 9})

    with pytest.raises(BuildError) as caught:
        verify.verify_image(
            FakeEngine(lambda spec: Run(prints=printed)), image(parts=(part,)), DIGEST, tmp_path
        )

    assert failure_text(caught.value.diagnostics[0]) == dedent(f"""\
        error: cannot read the version of `mpi4py` in image `mpi-cpu`
          image     mpi-cpu sha256:4f4f4f4f4f4f
          declared  4.1.2
          error     ImportError: libmpi.so.40: cannot open shared object file
          from      {smoke}:9
          full log  {tmp_path}/verified/mpi-cpu/components.log
        """)


def test_a_container_that_ends_without_answers_says_with_what(tmp_path: Path) -> None:
    part = InstalledComponent("a", "1.0", "", smoke_file(tmp_path, "a"))
    engine = FakeEngine(lambda spec: Run(exit_code=137))

    results = verify.run_probes(engine, image(parts=(part,)), DIGEST, log=tmp_path / "log")

    [_, version] = results.versions
    assert version.error == "exited with 137"


def installed_package(directory: Path, name: str, version: str, *requires: str) -> None:
    metadata = directory / f"{name}-{version}.dist-info/METADATA"
    metadata.parent.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    metadata.write_text("\n".join([*lines, *(f"Requires-Dist: {text}" for text in requires), "", ""]))


def load_contents() -> ModuleType:
    spec = importlib.util.spec_from_file_location("contents", verify.PROBES / "contents.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


contents = load_contents()


SKIPPED = ("x; extra == 'x'", "y<1; python_version < '3'")


def unmet(directory: Path) -> list[str]:
    distributions = importlib.metadata.distributions(path=[str(directory)])
    return [line for _, line in contents.unmet_requirements(distributions)]


def test_requirements_that_are_not_met_are_reported_as_pip_does(tmp_path: Path) -> None:
    installed_package(tmp_path, "Flask_App", "1.0", "werkzeug>=2", "click (>=7)", "tf>=2", *SKIPPED)
    installed_package(tmp_path, "Werkzeug", "1.9", "what ever?", "tf<3")
    installed_package(tmp_path, "tf-cpu", "3.0")

    assert unmet(tmp_path) == [
        "flask-app 1.0 has requirement werkzeug>=2, but you have werkzeug 1.9",
        "flask-app 1.0 requires click, which is not installed",
        "werkzeug 1.9 has an invalid requirement: what ever?",
        "werkzeug 1.9 has requirement tf<3, but you have tf 3.0",
    ]


def test_requirements_are_read_without_packaging_and_pip_in_the_image(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    installed_package(packages, "a", "1.0", "b>=2")
    installed_package(packages, "b", "2.0rc1")
    copy = tmp_path / "smoke"
    for path, content in verify._inputs(image(), verify._CONTENTS):
        file = copy / Path(path).relative_to("/run/bakehouse/smoke")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    probe = shutil.copy(verify.PROBES / "contents.py", copy)
    code = (
        "import importlib.metadata, importlib.util, sys\n"
        "spec = importlib.util.spec_from_file_location('contents', sys.argv[1])\n"
        "module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)\n"
        "lines = module.unmet_requirements(importlib.metadata.distributions(path=[sys.argv[2]]))\n"
        "print([line for _, line in lines], module.packaging('utils').__name__)\n"
    )

    process = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, probe, str(packages)],
        capture_output=True,
        text=True,
        check=True,
    )

    assert process.stdout == ("['a 1.0 has requirement b>=2, but you have b 2.0rc1'] probe_packaging.utils\n")


def test_conflicts_within_a_vendor_s_base_are_not_the_image_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed_package(tmp_path / "site", "theirs", "1.0", "missing")
    monkeypatch.setattr(contents, "LISTS", tmp_path / "lists")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])

    contents.check_packages_fit_together()

    installed_package(tmp_path / "site", "ours", "1.0", "theirs>1")
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists/requirements").write_text("20 /opt/site/ours-1.0.dist-info/METADATA\n")
    error = raised(AssertionError, contents.check_packages_fit_together)
    (tmp_path / "lists/python").write_text("20 /opt/venv/bin/python\n")
    with pytest.raises(AssertionError) as all_of_them:
        contents.check_packages_fit_together()

    assert str(error) == "ours 1.0 has requirement theirs>1, but you have theirs 1.0"
    assert str(all_of_them.value) == f"{error} (and 1 more)"


def test_a_file_in_two_layers_of_one_component_has_one_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "LISTS", tmp_path)
    for name in ("requirements~torch", "requirements~small_1"):
        (tmp_path / name).write_text("0 /opt/nvidia/__init__.py\n")

    contents.check_each_file_has_one_owner()

    (tmp_path / "pytorch").write_text("0 /opt/nvidia/__init__.py\n")
    with pytest.raises(AssertionError, match="1 files are in two components"):
        contents.check_each_file_has_one_owner()


def secrets_in(directory: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(contents, "TOP", str(directory))
    monkeypatch.setitem(sys.modules, "probe_secrets", secrets)
    try:
        contents.check_no_secrets()
    except AssertionError as error:
        return str(error)
    return ""


@pytest.fixture
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*os.environ]:
        if contents.CREDENTIAL_VARIABLE.fullmatch(name):
            monkeypatch.delenv(name)


# Joined here, so that scanners do not find them in this file
SECRETS = {
    "an AWS access key": "AKIA" + "Z7Q4" * 4,
    "a GitHub token": "ghp_" + "a1B2" * 9,
    "a Hugging Face token": "hf_" + "aB" * 17,
    "a private key": "-----BEGIN " + "RSA PRIVATE KEY-----\\nMIIEpAIBAAKCAQEA7",
}


@pytest.mark.usefixtures("no_variables")
@pytest.mark.parametrize("what", SECRETS)
def test_a_secret_in_a_text_is_reported_without_it(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").write_text(f"# Keys\nKEY = '{SECRETS[what]}'\n")

    assert secrets_in(tmp_path, monkeypatch) == f"{tmp_path}/code/train.py:2 contains {what}"


@pytest.mark.usefixtures("no_variables")
def test_examples_of_keys_packages_and_binary_files_are_not_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("KEY = 'AKIAIOSFODNN7EXAMPLE'\n")
    for name in ("usr/lib/tests.py", "packages/tests.py", "component/tests.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(SECRETS["an AWS access key"])
    (tmp_path / "table.bin").write_bytes(b"\0" + SECRETS["an AWS access key"].encode())
    monkeypatch.setattr(contents, "NOT_SEARCHED", {f"{tmp_path}/usr/lib": "of the distribution"})
    monkeypatch.setattr(contents, "package_directories", lambda: {f"{tmp_path}/packages"})
    monkeypatch.setattr(contents, "LISTS", tmp_path / "lists")
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists/python").write_text(f"20 {tmp_path}/component/tests.py\n")
    monkeypatch.setenv("WANDB_API_KEY", "")
    monkeypatch.setenv("GIT_TOKEN", "/run/secrets/token")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")

    assert secrets_in(tmp_path, monkeypatch) == ""
    with (tmp_path / "component/tests.py").open("a") as changed:
        changed.write("\n")
    assert secrets_in(tmp_path, monkeypatch) == f"{tmp_path}/component/tests.py:1 contains an AWS access key"


SEVEN = {
    ".env": "DB_PASSWORD=hunter2\n",
    ".ssh/id_rsa": "anything\n",
    ".git/config": "[remote]\n\turl = https://me:hunter2@git.invalid/code\n",
    ".aws/credentials": "[default]\naws_access_key_id = x\n",
    ".netrc": "machine example.org login me password it\n",
    "lib/ssl/server.key": SECRETS["a private key"],
    "ssh/token.py": SECRETS["a GitHub token"],
}


@pytest.mark.usefixtures("no_variables")
@pytest.mark.parametrize("name", SEVEN)
def test_no_directory_of_the_code_is_skipped_for_its_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "opt/ml/code" / name
    file.parent.mkdir(parents=True)
    file.write_text(SEVEN[name])

    assert secrets_in(tmp_path, monkeypatch).startswith(f"{file}:")


@pytest.mark.usefixtures("no_variables")
def test_own_files_are_searched_anywhere_unless_the_recipe_allows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("system", "top"):
        (tmp_path / name).mkdir()
    probe = Path(shutil.copy(verify.PROBES / "contents.py", tmp_path))
    secret = tmp_path / "system/key.py"
    secret.write_text(SECRETS["a GitHub token"])
    monkeypatch.setattr(contents, "__file__", str(probe))
    own = tmp_path / "own_files.json"

    own.write_text(json.dumps({"own": [str(secret)], "allowed": []}))
    assert secrets_in(tmp_path / "top", monkeypatch) == f"{secret}:1 contains a GitHub token"
    own.write_text(json.dumps({"own": [str(secret)], "allowed": [str(secret)]}))
    assert secrets_in(tmp_path / "top", monkeypatch) == ""


@pytest.mark.usefixtures("no_variables")
def test_variables_with_secrets_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".netrc").write_text("machine example.org login me password it\n")

    assert secrets_in(tmp_path, monkeypatch) == f"{tmp_path}/.netrc:1 contains credentials"
    monkeypatch.setenv("WANDB_API_KEY", "secret")
    assert secrets_in(tmp_path, monkeypatch) == f"{tmp_path}/.netrc:1 contains credentials (and 1 more)"
    (tmp_path / ".netrc").unlink()
    assert secrets_in(tmp_path, monkeypatch) == "the variable WANDB_API_KEY has a secret"


@pytest.mark.parametrize("entry", ["lib", "/missing", ""])
def test_the_library_path_has_only_directories(
    entry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "LISTS", tmp_path)
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}:{entry}")
    with pytest.raises(unittest.SkipTest, match=r"^$"):
        contents.check_library_path_has_only_directories()
    (tmp_path / "python").touch()

    error = raised(AssertionError, contents.check_library_path_has_only_directories)

    message = f"LD_LIBRARY_PATH has `{entry}`, which is not a directory with its full path"
    assert str(error) == message
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/usr/local/nvidia/lib64:{tmp_path}")
    contents.check_library_path_has_only_directories()
    monkeypatch.delenv("LD_LIBRARY_PATH")
    contents.check_library_path_has_only_directories()


def test_an_empty_licence_text_fails_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "LISTS", tmp_path)
    (tmp_path / "hwloc").write_text("1718 /usr/share/doc/hwloc/copyright\n")
    contents.check_licence_texts_are_there()

    (tmp_path / "metis").write_text("0 /usr/share/doc/metis/copyright\n")
    error = raised(AssertionError, contents.check_licence_texts_are_there)

    assert str(error) == "/usr/share/doc/metis/copyright contains no licence text"


def test_licence_texts_of_sources_are_joined(tmp_path: Path) -> None:
    script = tmp_path / "keep-licences"
    script.write_text(
        (HOME / "templates/bin/keep-licences").read_text().replace("/out", str(tmp_path / "out"))
    )
    for name, text in (("NOTICE", "b\n"), ("LICENSE.txt", "a\n"), ("more/COPYING", "c\n"), ("README", "d\n")):
        (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "source" / name).write_text(text)

    for arguments in (["metis"], ["librmm", ".", "more"], ["nothing", "missing"]):
        subprocess.run(["sh", script, *arguments], cwd=tmp_path / "source", check=True)

    texts = {path.parent.name: path.read_text() for path in tmp_path.glob("out/usr/share/doc/*/copyright")}
    assert texts == {"metis": "a\nb\n", "librmm": "a\nb\nc\n", "nothing": ""}
