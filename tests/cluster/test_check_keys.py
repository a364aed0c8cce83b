"""Keys of checks: what changes them, and what does not."""

import ast
import dataclasses
import inspect
import io
import textwrap
import tokenize
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import bakehouse
from bakehouse.builder import verify
from bakehouse.catalog.job_checks import JOB_CHECKS
from bakehouse.catalog.user_smoke import UserSmoke
from bakehouse.cluster import check_keys, job_report, job_runner, ranks, smoke, smoke_checks, smoke_results
from bakehouse.cluster.check_keys import definition_of, definitions, long_definitions
from bakehouse.cluster.smoke_report import Setup
from bakehouse.engine import docker
from bakehouse.engine.protocol import ContainerSpec
from bakehouse.errors import Location
from bakehouse.plan.model import Image, InstalledComponent
from bakehouse.util.hashing import key_of
from tests.support import plans
from tests.support.built_images import TOOLKIT
from tests.support.fake_engine import image

SMOKE = "def installed():\n    return '1.0'\n\n\ndef check_it():\n    pass\n"


@pytest.fixture
def tested(tmp_path: Path) -> Image:
    """An image with two components that have checks, and a test of the user."""
    for name in "ab":
        (tmp_path / f"{name}.py").write_text(SMOKE)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/rows.csv").write_text("1,2\n")
    parts = tuple(InstalledComponent(name, "1.0", "", tmp_path / f"{name}.py") for name in "ab")
    channels = (("training", tmp_path / "data"),)
    user = UserSmoke(
        "train.py", 1, 1, "script", (), channels, "done", 600, Location(tmp_path / "r.yaml", 1, 1)
    )
    return plans.changed(image(parts=parts), smoke=user, entry_point="train.py")


def keys(of: Image, setup: Setup = TOOLKIT) -> dict[str, str]:
    return {name: definition.key for name, definition in definitions(of, setup, ()).items() if definition.key}


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {name for name in {*before, *after} if before.get(name) != after.get(name)}


def jobs(found: Iterable[str]) -> set[str]:
    """The checks that run a job."""
    return {*JOB_CHECKS}.intersection(found)


def test_every_check_has_a_key_of_its_own(tested: Image) -> None:
    found = keys(tested)

    assert {"components.a", "components.contents", "user_code", "mpi_2x2", "no_private_keys"} <= {*found}
    assert len({*found.values()}) == len(found)


def test_a_changed_check_of_a_component_changes_its_key_only(tested: Image, tmp_path: Path) -> None:
    before = keys(tested)
    with (tmp_path / "a.py").open("a") as file:
        file.write('\nraise SystemExit("always fails")\n')

    assert changed(before, keys(tested)) == {"components.a"}


def test_a_file_of_the_user_s_channel_changes_the_key_of_the_user_s_test(
    tested: Image, tmp_path: Path
) -> None:
    before = keys(tested)
    (tmp_path / "data/more.csv").write_text("3,4\n")

    after = keys(tested)
    assert changed(before, after) == {"user_code"}
    (tmp_path / "data/link").symlink_to("/etc/hostname")
    assert changed(after, keys(tested)) == {"user_code"}


@pytest.mark.parametrize("name", ["train_ok.py", "mpi_allreduce.py", "job_record.py", "contents.py"])
def test_a_changed_probe_changes_the_keys_of_its_checks(
    tested: Image, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = keys(tested)
    users = {
        "train_ok.py": {"train_success"},
        "mpi_allreduce.py": {"mpi_2x2", "mpirun_1x2"},
        "job_record.py": jobs(before) - {"user_code"},
        "contents.py": {"components.contents"},
    }
    for module in (verify, smoke_checks):
        read = module.read_bytes

        def read_changed(path: Path, read: object = read) -> bytes:
            content: bytes = read(path)  # type: ignore[operator]
            return content + b"\npass\n" if path.name == name else content

        monkeypatch.setattr(module, "read_bytes", read_changed)

    assert changed(before, keys(tested)) == users[name]


def test_labels_names_and_versions_of_bakehouse_change_nothing(
    tested: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = keys(tested)
    other = replace(tested, name="other", summary="another text", labels={"a": "b"})
    monkeypatch.setattr(bakehouse, "__version__", "99.0")

    assert keys(other) == before


def handed_values(spec: ContainerSpec) -> dict[str, Any]:
    """Return another value for each setting of a container that decides what runs in it."""
    return {
        "command": (*spec.command, "x"),
        "keep_entrypoint": not spec.keep_entrypoint,
        "hostname": "elsewhere",
        "network": "host",
        "environment": {**spec.environment, "A": "1"},
        "files": {**spec.files, "/x": b""},
        "mounts": (*spec.mounts, "/x"),
        "room": {"/x": 1},
        "volumes": {"/x": "v"},
        "shared_directories": {"/x": "/y"},
        "extra_hosts": {"x": "127.0.0.1"},
        "cpus": 0.5,
        "memory": 1,
        "shared_memory": 1,
        "interactive": True,
        "terminal": True,
    }


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(ContainerSpec)])
def test_another_runner_changes_the_keys(tested: Image, field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = keys(tested)
    handed = check_keys._handed
    monkeypatch.setattr(
        check_keys, "_handed", lambda spec: handed(replace(spec, **{field: handed_values(spec)[field]}))
    )
    if field in ("image", "image_name", "gpus"):
        assert field not in handed_values(ContainerSpec("", ()))
        return

    assert changed(before, keys(tested)) == {*before} - {"no_private_keys"}


@pytest.mark.parametrize("change", [{"deadline": 1.0}, {"grace": 1.0}, {"processes_per_host": 9}])
def test_limits_and_ranks_of_jobs_are_part_of_their_keys(
    tested: Image, change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = keys(tested)
    made = smoke_checks.job_checks
    monkeypatch.setattr(
        check_keys,
        "job_checks",
        lambda *arguments: tuple(
            replace(check, job=check.job and replace(check.job, **change)) for check in made(*arguments)
        ),
    )

    assert changed(before, keys(tested)) == jobs(before)


def test_hosts_ranks_gpus_and_the_runner_are_part_of_the_keys() -> None:
    gpu = image(gpu=True, launchers=("torchrun", "mpirun"))
    setups = [replace(TOOLKIT, gpus=1), replace(TOOLKIT, gpus=2), replace(TOOLKIT, gpus=2, is_remote=True)]

    assert len({keys(gpu, setup)["nccl_all_reduce"] for setup in setups}) == 3
    assert len({keys(gpu, setup)["components.contents"] for setup in (TOOLKIT, *setups)}) == 3


def test_a_change_of_the_judge_changes_every_key(tested: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    before = keys(tested)
    monkeypatch.setattr(check_keys, "JUDGE", check_keys.JUDGE + 1)

    assert changed(before, keys(tested)) == {*before}


def test_a_check_that_cannot_run_has_a_reason_instead_of_a_key(tested: Image) -> None:
    remote = definitions(tested, replace(TOOLKIT, is_remote=True), ())

    assert (remote["mpi_2x2"].key, remote["mpi_2x2"].obstacle) == ("", "it needs 2 hosts; the job has 1 host")
    assert definitions(tested, Setup(), ())["train_success"].obstacle == "the image contains no `train`"


def test_results_of_a_component_belong_to_its_program(tested: Image, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(f"{SMOKE}\n\ndef long_check_more():\n    pass\n")
    known = definitions(tested, TOOLKIT, ())

    assert definition_of("components.a.it", known) == known["components.a"]
    assert definition_of("components.none.it", known) is None
    assert {*long_definitions(tested, TOOLKIT)} == {"components.a.more"}
    assert long_definitions(tested, TOOLKIT)["components.a.more"] != known["components.a"]


_JUDGES = (
    smoke_results,
    ranks.read_events,
    ranks.split_log,
    ranks.first_failure,
    ranks.ranks_without,
    ranks.launcher_failures,
    job_report.report,
    job_runner.run,
    job_runner._Monitor,
    job_runner._host_result,
    smoke._Checks,
    verify.run_probes,
    verify.read_results,
    verify.same_version,
    docker.DockerEngine._arguments,
)
_FINGERPRINT = "21e9269db5b1ec21"


def code_of(judge: object) -> list[str]:
    """Return the words of code, without comments, docstrings and imports."""
    text = textwrap.dedent(inspect.getsource(judge))  # type: ignore[arg-type]
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            lines[token.start[0] - 1] = lines[token.start[0] - 1][: token.start[1]]
    for node in ast.walk(ast.parse(text)):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.stmt) and (is_text or isinstance(node, ast.Import | ast.ImportFrom)):
            first, last = node.lineno - 1, node.end_lineno or node.lineno
            lines[first:last] = [""] * (last - first)
    return " ".join(lines).split()


def test_code_that_judges_answers_has_its_number() -> None:
    """Raise `JUDGE` if a check may now get another outcome; then, or if it cannot, update the fingerprint."""
    assert key_of(check_keys.JUDGE, [*map(code_of, _JUDGES)])[:16] == _FINGERPRINT
