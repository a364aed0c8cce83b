"""Answers of `bake resolve` and `bake explain`, with the warnings of the catalogue."""

import json
import re
from pathlib import Path

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.cli import main

SMP = "pytorch-1.10-cu113-py38-smp"
TCP = "such instances have no EFA, so their hosts communicate over TCP\n"
UNUSED = f"{SMP}: efa 1.14.1 with ml.p3.16xlarge: {TCP}"


@pytest.fixture(autouse=True)
def _at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HOME)
    monkeypatch.setenv("NO_COLOR", "1")


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main.run(words) == 0
    return capsys.readouterr().out


def test_an_image_with_efa_runs_on_instances_without_it(capsys: pytest.CaptureFixture[str]) -> None:
    output = answer(
        capsys, "resolve", SMP, "--assume", "instance=ml.p3.16xlarge", "--assume", "instance=ml.c5.18xlarge"
    )

    assert output.startswith(f"{SMP} fits with ml.p3.16xlarge and ml.c5.18xlarge\n")
    assert f"warning: {SMP}: efa 1.14.1 with ml.p3.16xlarge, ml.c5.18xlarge: {TCP}  source: " in output


def test_an_image_without_efa_uses_tcp_between_instances_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    without = "without which NCCL uses TCP between hosts of ml.p4d.24xlarge\n"

    def warning(*words: str) -> str:
        return answer(capsys, "resolve", *words, "--assume", "instance=ml.p4d.24xlarge").rpartition("\n  ")[2]

    assert warning("pytorch-cu130").endswith(f"\nwarning: pytorch-cu130: the image has no efa, {without}")
    assert warning("--assume", "aws-dlc-pytorch=1.9.0").endswith(
        f"\nwarning: the image is not known to have efa, {without}"
    )
    for image in ("pytorch-2.9-cu128-py312-efa", "pytorch-cpu"):
        assert without not in warning(image)
    words = ("resolve", "pytorch-cu130", "--assume", "instance=ml.g5.xlarge")
    assert "NCCL" not in answer(capsys, *words)


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (
            "pytorch-cu130",
            "the image has no efa, without which NCCL uses TCP between hosts of ml.p4d.24xlarge",
        ),
        ("pytorch-cpu", "nothing in the image uses the GPUs of ml.p4d.24xlarge"),
    ],
)
def test_json_has_the_warnings_about_targets(
    capsys: pytest.CaptureFixture[str], image: str, reason: str
) -> None:
    output = answer(capsys, "resolve", image, "--assume", "instance=ml.p4d.24xlarge", "--json")

    [fit] = json.loads(output)["fits"]
    assert fit["warnings"][-1] == {
        **{"component": None, "content": None, "with": [], "source": None},
        "reason": reason,
    }


@pytest.mark.parametrize(
    ("image", "assumption", "reason"),
    [
        ("pytorch-1.13-cu117-py39-smddp", "nccl=2.19", "efa 1.19.0: its libfabric can't register memory"),
        (SMP, "pytorch=2.1", "smp 1.7.0 (pt1.10.0-cu113-py38-2022-02-21) works with pytorch <2.1 "),
        (
            "tensorflow-2.21-cu129-py312-horovod",
            "horovod=*",
            "it lacks NCCL, so gradients of GPUs go through the host's memory; `horovod-nccl` has it",
        ),
    ],
)
def test_the_component_with_the_bound_is_a_reason(
    capsys: pytest.CaptureFixture[str], image: str, assumption: str, reason: str
) -> None:
    assert main.run(("resolve", image, "--assume", assumption)) == 3
    assert reason in capsys.readouterr().err


def resolve_own(directory: Path, monkeypatch: pytest.MonkeyPatch, recipe: str) -> int:
    """Resolve a recipe of a user's project, and return the exit code."""
    (directory / "pyproject.toml").write_text('[tool.bakehouse]\nrecipes = ["own"]\n')
    (directory / "own/images").mkdir(parents=True)
    (directory / "own/images/small.yaml").write_text(f"summary: a\n{recipe}")
    monkeypatch.chdir(directory)
    return main.run(("resolve", "small"))


def test_an_old_driver_gets_the_newest_cuda_whose_compatibility_libraries_support_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = (
        'base: {nvidia-cuda: "*"}\n'
        'components: {python: "3.12", cuda-compat: "*", pytorch: ">=2.9"}\n'
        'targets: {driver: "470"}\n'
    )
    assert resolve_own(tmp_path, monkeypatch, recipe) == 0
    assert "driver 470 needs cuda-compat 12.8" in capsys.readouterr().out


def test_the_recipe_s_version_of_the_compatibility_libraries_is_kept_for_an_old_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = (
        'base: {nvidia-cuda: "*"}\n'
        'components: {python: "3.12", cuda-compat: "<12.8", pytorch: ">=2.7"}\n'
        'targets: {driver: "470"}\n'
    )
    assert resolve_own(tmp_path, monkeypatch, recipe) == 0
    assert "driver 470 needs cuda-compat 12.6" in capsys.readouterr().out


@pytest.mark.parametrize("component", ["torchvision", "deepspeed-cpu"])
def test_a_framework_that_a_component_needs_is_the_one_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], component: str
) -> None:
    recipe = (
        'base: {debian: "12"}\n'
        f'components: {{python: "3.11", {component}: "*", horovod: "*"}}\n'
        "variants: {pytorch: cpu-*}\n"
    )
    assert resolve_own(tmp_path, monkeypatch, recipe) == 0
    assert "tensorflow" not in capsys.readouterr().out


def test_a_driver_fits_that_the_compatibility_libraries_support(capsys: pytest.CaptureFixture[str]) -> None:
    image = ("resolve", "pytorch-2.13-cu130-py312-efa", "--assume")
    output = answer(capsys, *image, "driver=570.86.15")
    assert "  driver 570.86.15 needs cuda-compat 13.0, which supports only data center GPUs\n" in output
    assert "supports only" not in answer(capsys, *image, "driver=580.65.06")

    assert main.run((*image, "driver=470.256.02")) == 3
    assert "needs driver >=580, not 470.256.02" in capsys.readouterr().err


def test_assumptions_fit_and_one_fits(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "resolve", "--assume", "efa=1.47.0").startswith("efa 1.47.0 fits\n")
    both = answer(capsys, "resolve", "--assume", "efa=1.47.0", "--assume", "python=3.12")
    assert both.startswith("efa 1.47.0 and python 3.12 fit\n")


def test_horovod_is_built_for_the_framework_of_the_image(capsys: pytest.CaptureFixture[str]) -> None:
    output = answer(capsys, "resolve", "pytorch-cpu", "--assume", "horovod=*")
    assert "  horovod 0.28.1 (pytorch-py311)\n" in output
    assert "tensorflow" not in output


def test_horovod_of_gpus_is_compiled_against_nccl_of_the_framework(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assumptions = ("cuda=12.9", "tensorflow=2.21", "horovod-nccl=*")
    output = answer(capsys, "resolve", *(word for name in assumptions for word in ("--assume", name)))
    assert "  horovod-nccl 0.28.1 (tensorflow-py3" in output

    [dockerfile] = (HOME / "images").glob("tensorflow-*-cu*-horovod/Dockerfile")
    text = dockerfile.read_text()
    assert "HOROVOD_GPU_OPERATIONS=NCCL HOROVOD_CUDA_HOME=/usr/local/cuda" in text
    assert "HOROVOD_NCCL_HOME=/opt/nccl HOROVOD_NCCL_LINK=SHARED\n" in text
    assert re.search(r"/amazon/openmpi/lib:/opt/venv/lib/python3[.]12/site-packages/nvidia/nccl/lib\"", text)


def test_answers_for_several_images_and_json_contain_the_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("resolve", SMP, "pytorch-2.2-cu121-py310-smddp", "--assume", "instance=ml.p3.16xlarge")
    output = answer(capsys, *words)
    assert f"warning: {UNUSED}" in output

    images = json.loads(answer(capsys, *words, "--json"))["images"]
    assert [image["warnings"][0]["with"] for image in images] == [["ml.p3.16xlarge"], ["ml.p3.16xlarge"]]


def test_explain_knows_the_strategy_with_which_keras_does_not_train(
    capsys: pytest.CaptureFixture[str],
) -> None:
    warning = "warning: `fit` of Keras 3 fails on several hosts with `multi_worker_mirrored_strategy`"
    assert warning in answer(capsys, "explain", "tensorflow-cpu")
    assert warning in answer(capsys, "explain", "tensorflow-cpu", "tensorflow")
    assert warning not in answer(capsys, "explain", "tensorflow-cpu", "python")
    assert warning not in answer(capsys, "explain", "mpi-cpu")
