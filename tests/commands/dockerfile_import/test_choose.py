"""The reverse index, base images, and the choice of versions."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bakehouse.catalog.catalog import Catalog
from bakehouse.commands.dockerfile_import import index
from bakehouse.commands.dockerfile_import.account import Fate
from bakehouse.commands.dockerfile_import.bases import find_base
from bakehouse.commands.dockerfile_import.index import ComponentSource, ReverseIndex, nearest
from tests.commands.dockerfile_import.translated_dockerfile import Translated

Translate = Callable[[str], Translated]
AWS = "763104351884.dkr.ecr.us-west-2.amazonaws.com"
PUBLIC = "public.ecr.aws/deep-learning-containers"
OWN = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/own:1"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://glaros.dtc.umn.edu/gkhome/fetch/sw/metis/metis-5.1.0.tar.gz",
         ComponentSource("metis", "5.1.0", "upstream")),
        ("https://github.com/rapidsai/rmm/archive/v0.15.0.tar.gz", ComponentSource("librmm", "0.15.0")),
        ("https://sourceforge.net/projects/boost/files/boost/1.73.0/boost_1_73_0.tar.gz/download",
         ComponentSource("boost", "1.73.0")),
        (
            "https://smdataparallel.s3.us-east-1.amazonaws.com/binary/pytorch/1.10.2/cu113/2022-02-18/"
            "smdistributed_dataparallel-1.4.0-cp38-cp38-linux_x86_64.whl",
            ComponentSource("smddp", "1.4.0", "pt1.10.2-cu113-py38-2022-02-18"),
        ),
        ("https://efa-installer.amazonaws.com/aws-efa-installer-latest.tar.gz", ComponentSource("efa")),
        ("https://www.open-mpi.org/software/ompi/v4.0/downloads/openmpi-4.0.4.tar.gz",
         ComponentSource("open-mpi", "4.0.4")),
        ("git@github.com:Dao-AILab/flash-attention.git", ComponentSource("flash-attn")),
        ("git+https://github.com/NVIDIA/TransformerEngine.git@v1.2",
         ComponentSource("transformer-engine", "1.2")),
        ("https://github.com/NVIDIA/apex", ComponentSource("apex")),
        ("https://download.pytorch.org/whl/cu121/torch-2.1.0%2Bcu121-cp310-cp310-linux_x86_64.whl",
         ComponentSource("pytorch", "2.1.0", "cu121-*")),
        ("76faebe03f6c963127dbb73c13eab58c9a3faeae48779f049066a21c087c5db2",
         ComponentSource("metis", "5.1.0", "upstream")),
        ("https://example.com/x-1.0.tar.gz", None),
        ("https://github.com/aws/deep-learning-containers", None),
        ("metis-5.1.0.tar.gz", None),
    ],
)  # fmt: skip
def test_the_reverse_index(text: str, expected: ComponentSource | None, catalog: Catalog) -> None:
    assert ReverseIndex(catalog).find(text) == expected


def test_the_tables_name_components_of_the_catalogue(catalog: Catalog) -> None:
    tables = (index._REPOSITORIES, index._FILES, index._APT, index._PIP)
    names = {name for table in tables for name in table.values()} | {*index._IN_REQUIREMENTS}

    assert names - catalog.components.keys() == set()


@pytest.mark.parametrize(
    ("version", "expected"),
    [("2.5.1", "2.5.0"), ("2.6.1", "2.7.0"), ("1.0", "2.4.1"), ("3.0", "2.7.0"), ("nonsense", "2.4.1")],
)
def test_the_nearest_version(version: str, expected: str) -> None:
    assert nearest(iter(("2.4.1", "2.5.0", "2.7.0")), version)[0] == expected


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        (f"{AWS}/pytorch-training:2.5.1-gpu-py311-cu124-ubuntu22.04-sagemaker",
         "aws-dlc-pytorch 2.5.1 cu124-py311"),
        (f"{AWS}/pytorch-training:2.1.0-gpu-py310", "aws-dlc-pytorch 2.1.0 cu121-py310"),
        (f"{PUBLIC}/pytorch-training:2.6.0-cpu-py312-ubuntu22.04-sagemaker",
         "aws-dlc-pytorch 2.6.0 cpu-py312"),
        (f"{AWS}/pytorch-training:2.5.1-gpu-py311-cu124-ubuntu22.04-ec2",
         "aws-dlc-pytorch 2.5.1 cu124-py311: "
         "an -ec2 tag is the image without SageMaker's toolkit; the recipe starts from -sagemaker"),
        (f"{AWS.replace('us-west-2', '${R}')}/pytorch-training:2.1.0-gpu-py310-cu121-ubuntu20.04-sagemaker",
         "aws-dlc-pytorch 2.1.0 cu121-py310"),
        (f"{PUBLIC}/pytorch-training:2.10.0-gpu-py313-cu130-amzn2023-sagemaker",
         "aws-dlc-pytorch 2.10.0 cu130-py313: the catalogue's image differs in amzn2023"),
        (f"{AWS}/pytorch-training-neuronx:2.5.1-neuronx-py310-sdk2.22.0-ubuntu22.04",
         "aws-neuron-pytorch 2.5.1 sdk2.22.0-py310"),
        ("nvcr.io/nvidia/pytorch:26.07-py3", "nvidia-ngc-pytorch 26.07"),
        ("nvcr.io/nvidia/pytorch:23.10-py3",
         "nvidia-ngc-pytorch 26.03: the catalogue has 26.03 as the nearest; "
         "run `bake init --base nvcr.io/nvidia/pytorch:23.10-py3` to describe the image itself"),
        ("nvidia/cuda:11.3.1-cudnn8-devel-ubuntu20.04", "nvidia-cuda 11.3.1 cudnn8-runtime-ubuntu20.04"),
        ("nvcr.io/nvidia/cuda:12.9.1-devel-ubuntu22.04", "nvidia-cuda 12.9.1 runtime-ubuntu22.04"),
        ("docker.io/library/python:3.11-slim", "debian 12"),
        ("debian:trixie-slim", "debian 13"),
        ("ubuntu:22.04", "debian 12: "
         "the catalogue has no ubuntu 22.04 without a framework, so the recipe starts from Debian 12"),
        (OWN, "debian 12: the catalogue does not describe `own` of registry 123456789012, so the recipe "
         f"starts from Debian 12; run `bake init --base {OWN}` to describe it"),
    ],
)  # fmt: skip
def test_bases(reference: str, expected: str, catalog: Catalog) -> None:
    choice = find_base(reference, catalog).choices[0]
    name = " ".join(filter(None, (choice.component, choice.version, choice.variant)))

    assert ": ".join(filter(None, (name, choice.note))) == expected


def test_a_version_that_the_catalogue_lacks_changes_only_itself(translated: Translate) -> None:
    result = translated(
        f"FROM {AWS}/pytorch-training:2.5.1-gpu-py311-cu124-ubuntu22.04-sagemaker\n"
        "RUN pip install torch==2.5.1 deepspeed==0.15.4 mpi4py==4.0.1\n"
    )
    version = result.selection.components["deepspeed"]

    assert result.selection.base == ("aws-dlc-pytorch", "2.5.1")
    assert (2, "pip install deepspeed==0.15.4") in {(line, text) for line, text, _ in result.checks}
    assert any(
        detail == f"the catalogue lacks deepspeed 0.15.4; the recipe has {version}, the nearest that fits"
        for _, _, detail in result.checks
    )
    assert not [text for _, text, _ in result.checks if "torch" in text]


def test_a_component_that_does_not_fit_is_named_with_the_reason(translated: Translate) -> None:
    result = translated("FROM debian:12\nRUN pip install torch==2.13.0 xformers==0.0.30\n")

    [(line, text, detail)] = result.checks
    assert (line, text) == (1, "xformers")
    assert detail.startswith("no release of xformers in the catalogue fits debian 12 with python ")
    assert [*result.proposal.requirements] == ["xformers==0.0.30"]
    jax = translated("FROM nvidia/cuda:12.4.1-devel-ubuntu22.04\nRUN pip install jax[cuda12]==0.4.30\n")
    assert [*jax.proposal.requirements] == ["jax[cuda12]==0.4.30"]


def test_an_efa_that_hangs_moves_to_another_version(translated: Translate) -> None:
    result = translated(
        "FROM nvidia/cuda:12.9.1-devel-ubuntu22.04\n"
        "RUN curl -O https://efa-installer.amazonaws.com/aws-efa-installer-1.47.0.tar.gz\n"
        "RUN git clone -b v2.29.3-1 https://github.com/NVIDIA/nccl.git\n"
    )

    assert result.selection.components["nccl"] == "2.29.3"
    assert "efa" in result.selection.inexact


@pytest.mark.parametrize(
    ("image", "command", "names"),
    [
        ("pytorch:2.13-cu133-amzn2023-sagemaker", "apt-get install -y libgl1 nosuch && dnf install -y make",
         ["dnf, not apt: `mesa-libGL` is its name there", "dnf, not apt: find its name for dnf"]),
        ("pytorch-training:2.6.0-gpu-py312-cu126-ubuntu22.04-sagemaker", "yum install -y mesa-libGL htop",
         ["apt, not dnf: `libgl1` is its name there", "apt, not dnf: find its name for apt"]),
        ("pytorch:2.13-cu133-amzn2023-sagemaker", "dnf install -y make", []),
    ],
)  # fmt: skip
def test_names_of_packages_are_those_of_the_manager(
    image: str, command: str, names: list[str], translated: Translate
) -> None:
    result = translated(f"FROM {AWS}/{image}\nRUN {command}\n")

    expected = [f"aws-dlc-pytorch has {name}, and add it to `packages`" for name in names]
    assert [detail for _, _, detail in result.checks] == expected
    assert names or (2, f"RUN {command}", "`packages`") in result.rows(Fate.RECIPE)


@pytest.mark.parametrize(
    ("image", "command", "device"),
    [
        ("debian:12", "conda install -y python=3.10 pytorch=2.1.0 pytorch-cuda=11.8", "cu121"),
        (f"{AWS}/pytorch-training:2.6.0-gpu-py312-cu126-ubuntu22.04-sagemaker",
         "pip install torch==2.6.0+cu118", "cu126"),
        ("debian:12", "pip install torch==2.10.0+cu128", ""),
    ],
)  # fmt: skip
def test_another_cuda_version_of_a_framework_is_noted(
    image: str, command: str, device: str, translated: Translate
) -> None:
    result = translated(f"FROM {image}\nRUN {command}\n")

    version = result.selection.resolution and result.selection.resolution.version_of("pytorch")
    text = f"no release of pytorch {version} for cu118 fits; the recipe has {device}"
    details = [detail for _, _, detail in result.checks]
    assert text in details if device else details == []


def test_a_version_that_the_catalogue_lacks_is_not_the_reason_against_the_others(
    translated: Translate,
) -> None:
    result = translated(
        "FROM nvcr.io/nvidia/pytorch:26.03-py3\nRUN pip install git+https://github.com/NVIDIA/apex@24.04.01\n"
    )

    assert "(apex 25.09 needs cuda >=12.8,<13, not 13.2); what installs it is kept" in result.checks[0][2]
    assert result.steps == ["pip install git+https://github.com/NVIDIA/apex@24.04.01"]


def test_a_variable_that_a_component_sets_by_its_facts_goes_with_it(translated: Translate) -> None:
    url = "https://smdataparallel.s3.amazonaws.com/binary/pytorch/1.10.2/cu113/2022-02-18/"
    result = translated(
        "FROM nvidia/cuda:11.3.1-cudnn8-devel-ubuntu20.04\nRUN SMDATAPARALLEL_PT=1 OWN=1 pip install "
        f"{url}smdistributed_dataparallel-1.4.0-cp38-cp38-linux_x86_64.whl\n"
    )

    assert [detail for _, _, detail in result.checks] == [
        "components are built with their own variables; OWN is left out"
    ]
    assert "smddp" in result.selection.components


@pytest.mark.parametrize(("pin", "cuda"), [("2.13.0", "13."), ("1.10", "")])
def test_a_pinned_framework_keeps_its_version_or_is_no_component(
    pin: str, cuda: str, translated: Translate, context: Path
) -> None:
    (context / "requirements.txt").write_text(f"torch=={pin}\n")
    result = translated(
        "FROM nvidia/cuda:13.3.1-devel-ubuntu22.04\nCOPY requirements.txt .\n"
        "RUN pip install -r requirements.txt\n"
    )

    assert result.selection.components.get("pytorch", pin) == pin
    assert result.selection.base[1].startswith(cuda)
    assert any(f"torch=={pin}" in detail for _, _, detail in result.checks)


def test_a_framework_replaces_the_cudnn_of_the_base(translated: Translate) -> None:
    base = "FROM nvidia/cuda:12.8.1-cudnn-devel-ubuntu22.04"
    install = "RUN pip install torch==2.7.1 --index-url https://download.pytorch.org/whl/cu128"
    outcome = translated(f"{base}\n{install}\n")

    assert outcome.checks == []
    assert outcome.selection.variants == {"nvidia-cuda": "runtime-ubuntu22.04", "pytorch": "cu128-*"}
    detail = "`base`; compilers stay in the build stages; cuDNN comes with the framework"
    assert outcome.rows(Fate.RECIPE)[0] == (1, base, detail)
    assert translated(base).selection.variants == {"nvidia-cuda": "cudnn-runtime-ubuntu22.04"}
