"""Jobs of a smoke test for other runners, checked against their schemas, and ssh with a stub."""

import json
import os
import re
import subprocess
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from bakehouse.builder.verify import Outcome
from bakehouse.catalog.trust_settings import Policy
from bakehouse.cli import main
from bakehouse.cli.diagnostics import failure_text
from bakehouse.cluster import smoke_report, smoke_runners
from bakehouse.cluster.bare_machine import RootFileSystem
from bakehouse.cluster.remote_smoke import RemoteSmoke
from bakehouse.errors import BakehouseError, EngineError, SmokeError, UsageError
from bakehouse.plan.workspace import open_workspace, select
from bakehouse.publish import promote
from bakehouse.trust import signed_report
from tests.support import plans
from tests.support.errors import raised
from tests.support.fake_engine import CONTENT, image
from tests.support.release_records import a_record
from tests.support.remote_smoke import URI, document, plan_in, remote
from tests.support.sagemaker_releases import put
from tests.support.signing_keys import make_key
from tests.support.trees import Tree

pytestmark = pytest.mark.timeout(60)

GPUS = replace(remote(), gpus=4)
NAME = smoke_runners.job_id(GPUS)
ROOT = RootFileSystem("0" * 64, b"{}")


def message(error: BakehouseError) -> str:
    return failure_text(error.diagnostics[0])


def test_the_kubernetes_job_is_valid(tmp_path: Path) -> None:
    path = smoke_runners.write_job("kubernetes", GPUS, tmp_path, 1800).path

    config_map, job = list(yaml.safe_load_all(path.read_text()))
    for manifest in (config_map, job):
        kubernetes_validate.validate(manifest, "1.31", strict=True)
    [container] = job["spec"]["template"]["spec"]["containers"]
    assert container["image"] == URI
    assert container["command"] == ["python3", "/bakehouse/smoke.py"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "4"}}
    assert (job["spec"]["backoffLimit"], job["spec"]["activeDeadlineSeconds"]) == (0, 1800)
    assert config_map["metadata"]["name"] == NAME
    assert config_map["data"]["file-0"] == (tmp_path / "smoke.py").read_text()


def test_the_slurm_script_runs_the_candidate(tmp_path: Path) -> None:
    text = smoke_runners.write_job("slurm", GPUS, tmp_path, 601).path.read_text()

    host, _, image = URI.partition("/")
    assert text.splitlines() == [
        "#!/bin/bash",
        f"#SBATCH --job-name={NAME}",
        "#SBATCH --nodes=1",
        "#SBATCH --ntasks-per-node=1",
        "#SBATCH --gpus-per-node=4",
        "#SBATCH --propagate=NONE",
        "#SBATCH --time=11",
        "set -eu",
        "export NVIDIA_VISIBLE_DEVICES=all",
        "export NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        "export NCCL_SOCKET_IFNAME='^docker,lo,veth'",
        "srun \\",
        "    --cpu-bind=none \\",
        "    --kill-on-bad-exit=1 \\",
        f"    '--container-image=docker://{host}#{image}' \\",
        f"    --container-mounts={tmp_path}:/bakehouse \\",
        "    --container-env=NVIDIA_VISIBLE_DEVICES,NVIDIA_DRIVER_CAPABILITIES,NCCL_SOCKET_IFNAME \\",
        "    --no-container-mount-home \\",
        "    python3 /bakehouse/smoke.py --out /bakehouse/results.json",
    ]


@pytest.mark.parametrize("runner", smoke_runners.PRINTED)
def test_a_job_is_written_with_its_script(tmp_path: Path, runner: str) -> None:
    job = smoke_runners.write_job(runner, GPUS, tmp_path / "jobs", 60)

    assert (tmp_path / "jobs/smoke.py").read_text().startswith('"""Run smoke checks')
    assert job.path.parent == job.results.parent == tmp_path / "jobs"
    assert job.path.exists()
    assert any(str(job.path) in command for command in job.commands)


@pytest.mark.parametrize("runner", [*smoke_runners.PRINTED, smoke_runners.BARE])
def test_printed_commands_can_be_copied_into_a_shell(tmp_path: Path, runner: str) -> None:
    directory = tmp_path / "our $HOME & jobs"
    directory.mkdir()
    if runner == smoke_runners.BARE:
        job = smoke_runners.write_bare_script(GPUS, ROOT, directory, 60)
    else:
        job = smoke_runners.write_job(runner, GPUS, directory, 60)
    log = tmp_path / "arguments"
    for program in ("sbatch", "kubectl", "scp", "ssh"):
        write(tmp_path / program, f"printf '%s\\n' \"$@\" >> {log}; echo out")

    for command in job.commands:
        variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        subprocess.run(["sh", "-c", command], env=variables, check=True, capture_output=True)

    words = log.read_text().splitlines()
    assert str(job.path) in words
    assert job.results.name == "results.json" or job.results.read_text() == "out\n"


@pytest.fixture
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("our builds")


@pytest.fixture
def tiny(tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of an image with a candidate, in a project in the current directory."""
    tree = Tree(tmp_path)
    tree.write("pyproject.toml", '[tool.bakehouse]\nrecipes = ["mine"]\n')
    tree.write("mine/images/tiny.yaml", 'summary: Tiny\nbase: {debian: "12"}\n')
    [image] = select(open_workspace(tmp_path), ["tiny"]).plan.images
    put(tmp_path, replace(a_record(), image="tiny", key=image.key, candidate=True))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BAKEHOUSE_STATE", str(state))
    return image.name


def test_the_command_that_reads_the_results_is_complete(
    tiny: str, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--check", "components", "--gpus", "2", "--timeout", "60", "--report", "my report.json")

    assert main.run(("smoke", tiny, "--on", "kubernetes", *options)) == 0

    first, *_, then, last = capsys.readouterr().err.splitlines()
    assert (first, then) == ("run:", "then:")
    assert last == (
        f"  bake smoke tiny --on kubernetes --results '{state}/smoke/tiny/kubernetes/results.log' "
        "--check components --gpus 2 --timeout 60 --report 'my report.json'"
    )


@pytest.mark.parametrize("runner", smoke_runners.PRINTED)
def test_a_scheduler_takes_no_named_gpus(runner: str, tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(("smoke", tiny, "--on", runner, "--gpus", "device=0,2")) == 64
    assert capsys.readouterr().err == (
        f"error: `--gpus device=0,2` cannot be combined with `--on {runner}`\n\n"
        "hint: use `--gpus 2`; the scheduler selects the GPUs\n"
    )


def test_a_script_for_a_machine_without_an_engine_selects_the_named_gpus(
    tiny: str, state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bakehouse.pipeline.smoke.write_root", lambda *arguments: ROOT)
    directory = state / "smoke/tiny/bare"
    directory.mkdir(parents=True)

    assert main.run(("smoke", tiny, "--on", "bare", "--gpus", "device=0,2", "--check", "components")) == 0

    captured = capsys.readouterr()
    assert captured.out == f"{directory}\n"
    assert captured.err == (
        "run:\n"
        f"  scp '{directory}/rootfs.tar.gz' '{directory}/smoke.sh' gpu-host:\n"
        "  ssh -t gpu-host sh smoke.sh\n"
        f"  scp gpu-host:results.json '{directory}/results.json'\n"
        "then:\n"
        f"  bake smoke tiny --on bare --results '{directory}/results.json' "
        "--check components --gpus 2\n"
    )
    text = (directory / "smoke.sh").read_text()
    assert "        CUDA_VISIBLE_DEVICES=0,2 \\\n" in text


def test_the_report_of_a_machine_without_an_engine_is_signed(
    tiny: str,
    state: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(promote, "content_in_registry", lambda *_: CONTENT)
    key = make_key(tmp_path, "tester")
    with Path("pyproject.toml").open("a") as file:
        file.write(f'signing_key = "{key.private}"\n')
    check = ("--check", "no_private_keys")
    assert main.run(("smoke", tiny, "--on", "slurm", *check)) == 0
    script = (state / "smoke/tiny/slurm/smoke.py").read_text()
    plan = plan_in(script)
    results = {**document(GPUS), "id": plan["id"], "image": plan["image"]}
    Path("results.json").write_text(json.dumps(results))
    (state / "results.json").write_text(json.dumps(results))

    def words(results: str) -> tuple[str, ...]:
        return ("smoke", tiny, "--on", "bare", "--results", results, "--report", "report.json", *check)

    capsys.readouterr()
    assert main.run(words("results.json")) == 6
    assert capsys.readouterr().err == (
        "error: `results.json` is inside of the repository, so its results do not count\n"
        "  because a commit can contain such a file, without any test\n\n"
        f"hint: write it outside of `{tmp_path}`, such as `/tmp/results.json`\n"
    )
    assert main.run(words(f"{state}/results.json")) == 0

    verify = signed_report.verifier(Policy((key.public,)))
    report = smoke_report.read_file(Path("report.json"), tiny, CONTENT, timedelta(days=1000), verify)
    assert [(check.name, check.outcome) for check in report.checks] == [("no_private_keys", Outcome.PASSED)]

    changed = Path("report.json").read_text().replace('"passed"', '"failed"')
    Path("report.json").write_text(changed)
    with pytest.raises(SmokeError, match="was changed after it was written"):
        smoke_report.read_file(Path("report.json"), tiny, CONTENT, timedelta(days=1000), verify)


def test_named_gpus_reach_the_host_over_ssh(tiny: str, ssh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promote, "content_in_registry", lambda *_: CONTENT)
    # The stub's results are of other checks, which is found after its run.
    assert main.run(("smoke", tiny, "--on", "ssh://gpu-host", "--gpus", "device=0,2")) != 0
    assert ' --gpus "device=0,2" ' in (ssh / "calls").read_text()


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put stubs of ssh and docker on PATH: the first runs its command here, the second prints results."""
    bin_directory = tmp_path / "bin"
    bin_directory.mkdir()
    results = tmp_path / "results"
    results.write_text(json.dumps(document(GPUS)))
    write(
        bin_directory / "ssh", f'echo "ssh $@" >> {tmp_path}/calls; for last; do :; done; exec sh -c "$last"'
    )
    write(
        bin_directory / "docker",
        f'echo "docker $@" >> {tmp_path}/calls; cat > {tmp_path}/stdin; cat {results}',
    )
    monkeypatch.setenv("PATH", f"{bin_directory}:{os.environ['PATH']}")
    return tmp_path


def write(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_a_host_runs_the_candidate_s_digest_over_ssh(ssh: Path) -> None:
    lines: list[str] = []

    results = smoke_runners.run_over_ssh(GPUS, "ssh://me@gpu-host:2222", 60, lines.append)

    assert results == document(GPUS)
    assert lines == [f"mpi-cpu: running {URI} on ssh://me@gpu-host:2222; Ctrl-C stops it"]
    docker = (
        f"docker run --rm --interactive --name {NAME} --hostname algo-1 --shm-size 2048m --gpus 4 "
        f"--entrypoint python3 {URI} -"
    )
    assert (ssh / "calls").read_text().splitlines() == [
        f"ssh -o BatchMode=yes -p 2222 -- me@gpu-host {docker}",
        docker,
    ]
    assert (ssh / "stdin").read_text().startswith('"""Run smoke checks')


def test_a_host_gets_the_named_gpus_as_one_word_of_csv(ssh: Path) -> None:
    named = replace(GPUS, gpus=2, gpu_ids=("0", "GPU-5c1e"))

    smoke_runners.run_over_ssh(named, "ssh://gpu-host", 60, print)

    [_, docker] = (ssh / "calls").read_text().splitlines()
    assert '--shm-size 2048m --gpus "device=0,GPU-5c1e" --entrypoint' in docker


def test_checks_that_take_too_long_are_ended_on_the_host(ssh: Path) -> None:
    write(ssh / "bin/docker", f'echo "docker $1 $2 $3" >> {ssh}/calls; [ "$1" = rm ] || exec sleep 30')

    assert message(raised(SmokeError, smoke_runners.run_over_ssh, GPUS, "ssh://gpu-host", 1, print)) == (
        "error: the checks on `ssh://gpu-host` did not end within 1 s\n\n"
        "hint: set a higher `max_run` in a job file, for `--job`\n"
    )
    assert (ssh / "calls").read_text().splitlines()[-1] == f"docker rm --force {NAME}"


def test_a_host_that_cannot_be_reached_is_an_error(ssh: Path) -> None:
    write(ssh / "bin/ssh", "exit 255")

    assert message(raised(EngineError, smoke_runners.run_over_ssh, GPUS, "ssh://gpu-host", 10, print)) == (
        "error: `ssh://gpu-host` cannot be reached over ssh\n\n"
        "hint: run `ssh -o BatchMode=yes -- gpu-host docker version` to see why\n"
    )


def test_a_container_that_does_not_start_has_no_results(ssh: Path) -> None:
    write(ssh / "bin/docker", "echo 'no such image' >&2; exit 125")

    with pytest.raises(SmokeError, match="the output of `ssh://gpu-host` contains no complete results"):
        smoke_runners.run_over_ssh(GPUS, "ssh://gpu-host", 10, print)


@pytest.mark.parametrize("target", ["ssh://", "ssh://host:port", "ssh://host/path", "ssh://-oProxyCommand=x"])
def test_an_invalid_address_is_refused(target: str) -> None:
    assert message(raised(UsageError, smoke_runners.run_over_ssh, GPUS, target, 10, print)) == (
        f"error: `{target}` is not the address of a host\n\n"
        "hint: use `ssh://user@host` or `ssh://host:port`\n"
    )


def test_a_password_in_an_address_is_refused() -> None:
    error = raised(UsageError, smoke_runners.run_over_ssh, GPUS, "ssh://me:secret@host", 10, print)

    assert message(error) == (
        "error: the address of the host contains a password\n\nhint: remove it; ssh uses keys or an agent\n"
    )


def test_names_of_jobs_are_valid_for_all_runners() -> None:
    odd = RemoteSmoke(plans.changed(image(), name="PyTorch_2.13-" + 60 * "x"), URI, GPUS.content)

    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", smoke_runners.job_id(odd))
    assert len(smoke_runners.job_id(odd)) <= 63
