"""Consistency of the facts in Bakehouse's own catalogue."""

import re
from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from itertools import chain
from urllib.parse import urlsplit

import pytest
import yaml
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from bakehouse.catalog.component import INSTANCE, Requirement
from bakehouse.catalog.recipe import Recipe
from bakehouse.ledger.toolkit import DRIVERS, TOOLKITS
from bakehouse.lock.drift import python_of
from bakehouse.plan.model import Image, RegistryBase
from bakehouse.resolve.candidate import Candidate
from bakehouse.resolve.conflict_report import conflict_error
from bakehouse.resolve.resolver import Resolution, Unsatisfiable, resolve
from bakehouse.util.oci import ARM64, PLATFORM
from bakehouse.util.yaml_reader import Scalar
from tests.support.dockerfiles import Instruction, instructions
from tests.support.errors import raised
from tests.support.own_recipes import IMAGES, RECIPES, catalog, dockerfile, plan, recipes, rendered, resolved

COMPONENTS = sorted(path.name for path in (RECIPES / "components").iterdir())

SMP_IMAGE = "pytorch-1.10-cu113-py38-smp"
SMP_VERSIONS = {
    "nvidia-cuda": "11.3.1",
    "ubuntu": "20.04",
    "python": "3.8",
    "pytorch": "1.10.2",
    "cudnn": "8.2",
    "nccl": "2.10.3",
    "efa": "1.14.1",
    "open-mpi": "4.1.1",
    "aws-ofi-nccl": "1.1.3",
    "boost": "1.73.0",
    "metis": "5.1.0",
    "rmm": "0.15.0",
    "smddp": "1.4.0",
    "smp": "1.7.0",
    "sagemaker-training": "4.8.3",
    "sagemaker-pytorch-training": "2.9.0",
    "mpi4py": "4.1.2",
}
SMP_URLS = {
    "pytorch wheel": "https://aws-pytorch-unified-cicd-binaries.s3.us-west-2.amazonaws.com/r1.10.2_sm/"
    "20220912-052006/8463a9e51a7938004fece4983b367a2cfa876237/torch-1.10.2%2Bcu113-cp38-cp38-linux_x86_64.whl",
    "smddp wheel": "https://smdataparallel.s3.amazonaws.com/binary/pytorch/1.10.2/cu113/2022-02-18/"
    "smdistributed_dataparallel-1.4.0-cp38-cp38-linux_x86_64.whl",
    "smp wheel": "https://sagemaker-distributed-model-parallel.s3.us-west-2.amazonaws.com/pytorch-1.10.0/"
    "build-artifacts/2022-02-21-19-26/smdistributed_modelparallel-1.7.0-cp38-cp38-linux_x86_64.whl",
    "metis source": "http://glaros.dtc.umn.edu/gkhome/fetch/sw/metis/metis-5.1.0.tar.gz",
    "librmm source": "https://github.com/rapidsai/rmm/archive/v0.15.0.tar.gz",
    "librmm cnmem": "https://github.com/NVIDIA/cnmem/archive/37896cc9bfc6536a8c878a1e675835c22d827821.tar.gz",
    "librmm spdlog": "https://github.com/gabime/spdlog/archive/refs/tags/v1.6.0.tar.gz",
    "efa installer": "https://efa-installer.amazonaws.com/aws-efa-installer-1.14.1.tar.gz",
    "aws-ofi-nccl source": "https://github.com/aws/aws-ofi-nccl/archive/refs/tags/v1.1.3-aws.tar.gz",
    "nccl source": "https://github.com/NVIDIA/nccl/archive/refs/tags/v2.10.3-1.tar.gz",
    "boost source": "https://downloads.sourceforge.net/project/boost/boost/1.73.0/boost_1_73_0.tar.gz",
}
UNPINNED = {"aws-ofi-nccl", "efa", "libfabric", "nccl", "pytorch", "smddp", "smp", "torchaudio"}
"""Components with files that are not pinned yet."""
UNPINNED_BASES = {
    "aws-dlc-pytorch",
    "aws-dlc-tensorflow",
    "aws-neuron-pytorch",
    "aws-smp2",
    "aws-training-compiler-pytorch",
    "aws-training-compiler-tensorflow",
    "nvidia-cuda",
    "nvidia-ngc-pytorch",
}


@cache
def images() -> dict[str, Image]:
    return {image.name: image for image in plan().images}


def image(name: str) -> Image:
    return images()[name]


def candidates() -> Iterator[Candidate]:
    for component in catalog().components.values():
        for release in component.releases:
            for variant in release.variants:
                yield Candidate(component, release, variant)


@cache
def hosts() -> frozenset[str | None]:
    """The hosts that files of components come from."""
    files = (
        artifact
        for candidate in candidates()
        for artifact in candidate.spec.artifacts
        if artifact.kind == "url"
    )
    return frozenset(urlsplit(file.source).hostname for file in files)


def resolves(recipe: Recipe) -> Resolution | None:
    try:
        return resolve(recipe, catalog())
    except Unsatisfiable:
        return None


def can_be_chosen(candidate: Candidate) -> bool:
    """Return whether it resolves with some base and the components that it requires, or within an image."""
    if str(candidate) in chosen_somewhere():
        return True
    location = candidate.variant.location
    requirement = Requirement(candidate.name, f"=={candidate.release.version}", location)
    variants = {candidate.name: Scalar(candidate.variant.name, location)}
    platform = candidate.variant.platform
    empty = replace(recipes()["mpi-cpu"], platform=platform)
    if candidate.spec.base:
        return resolves(replace(empty, base=requirement, components=(), variants=variants)) is not None
    # What fitted another release first: that nothing fits takes far longer to find.
    likely = sorted(bases(), key=lambda base: base != FITTED.get(candidate.name, "nvidia-cuda"))
    alone = (
        replace(empty, base=Requirement(base, "", location), components=(requirement,)) for base in likely
    )
    users = (recipes()[name] for name in IMAGES if candidate.name in parts(name))
    beside = (replace(recipe, components=(*without(recipe, candidate.name), requirement)) for recipe in users)
    for recipe in chain(alone, beside):
        if resolves(replace(recipe, platform=platform, variants={**recipe.variants, **variants})):
            FITTED[candidate.name] = recipe.base.name
            return True
    return False


FITTED: dict[str, str] = {}
"""A base that each component was found to fit."""


@cache
def chosen_somewhere() -> frozenset[str]:
    """Return the candidates in an unchanged image."""
    resolutions = (resolved(name) for name in IMAGES)
    return frozenset(
        str(choice.candidate)
        for resolution in resolutions
        for choice in (resolution.base, *resolution.choices)
    )


def without(recipe: Recipe, name: str) -> Iterator[Requirement]:
    return (component for component in recipe.components if component.name != name)


@cache
def parts(name: str) -> frozenset[str]:
    return frozenset(choice.name for choice in resolved(name).choices)


@cache
def bases() -> tuple[str, ...]:
    return tuple(component.name for component in catalog().components.values() if component.is_base)


@cache
def raw(name: str) -> object:
    """A component.yaml with the notes and sources that the catalogue leaves to readers."""
    return yaml.load((RECIPES / "components" / name / "component.yaml").read_text(), yaml.CSafeLoader)


def mappings(
    node: object, above: tuple[dict[str, object], ...] = ()
) -> Iterator[tuple[dict[str, object], ...]]:
    """Every mapping of a document, last, after those around it."""
    if isinstance(node, dict):
        yield (*above, node)
        for value in node.values():
            yield from mappings(value, (*above, node))
    elif isinstance(node, list):
        for value in node:
            yield from mappings(value, above)


@pytest.mark.parametrize("name", IMAGES)
def test_each_image_resolves(name: str) -> None:
    assert resolved(name).recipe.name == name


def test_each_component_is_in_some_image() -> None:
    used = {choice.name for name in IMAGES for choice in (resolved(name).base, *resolved(name).choices)}
    assert used == set(COMPONENTS) - {INSTANCE}


@pytest.mark.parametrize("name", [name for name in COMPONENTS if name != INSTANCE])
def test_each_release_can_be_chosen_for_some_image(name: str) -> None:
    """Try the first and the last variant of each release."""
    tried = [
        Candidate(catalog().components[name], release, variant)
        for release in catalog().components[name].releases
        for variant in {edge.name: edge for edge in (release.variants[0], release.variants[-1])}.values()
    ]
    misfits = [
        candidate for candidate in tried if has_its_framework(candidate) and not can_be_chosen(candidate)
    ]
    assert [str(candidate) for candidate in misfits] == []


def has_its_framework(candidate: Candidate) -> bool:
    """Return whether the catalogue has the framework release of a wheel; AWS has older ones."""
    return all(
        any(
            requirement.allows(release.version) for release in catalog().components[requirement.name].releases
        )
        for requirement in candidate.spec.requires
        if requirement.name in ("pytorch", "tensorflow")
    )


def test_pytorch_has_the_setuptools_that_torch_compile_imports() -> None:
    """PyTorch 2.12 and 2.14 ended the need for it."""
    need_it = SpecifierSet(">=2,<2.14,!=2.12.*")
    lacking = [
        str(candidate)
        for candidate in candidates()
        if candidate.name == "pytorch"
        and candidate.release.version in need_it
        and "setuptools" not in candidate.packages
    ]
    assert lacking == []


@pytest.mark.parametrize("name", [name for name in IMAGES if "-cu" in name])
def test_an_image_named_for_a_cuda_has_it(name: str) -> None:
    digits = re.findall("-cu([0-9]+)", name)[-1]
    cuda = resolved(name).version_of("cuda")
    assert cuda is not None
    assert "".join(cuda.split(".")[:2]) == digits


@pytest.mark.parametrize("name", [name for name in IMAGES if name.endswith("-cpu")])
def test_an_image_named_for_the_cpu_has_no_cuda(name: str) -> None:
    assert resolved(name).version_of("cuda") is None
    assert not image(name).gpu


@pytest.mark.parametrize(
    ("name", "versions"),
    [
        (SMP_IMAGE, SMP_VERSIONS),
        (
            "pytorch-2.10-cu128-py312-efa",
            {
                "ubuntu": "24.04",
                "python": "3.12",
                "pytorch": "2.10.0",
                "cudnn": "9.10.2.21",
                "nccl": "2.27.5",
                "efa": "1.50.0",
                "open-mpi": "4.1.7",
                "aws-ofi-nccl": "1.21.1",
            },
        ),
        (
            "pytorch-2.13-cu130-py312-extended",
            {"pytorch": "2.13.0", "python": "3.12", "nccl": "2.29.7", "sagemaker-training": "5.1.1"},
        ),
        (
            "pytorch-2.9-neuron2.30-py312-extended",
            {"ubuntu": "24.04", "python": "3.12", "pytorch": "2.9", "neuron-sdk": "2.30.0"},
        ),
        (
            "pytorch-2.13-cu130-py312-megatron",
            {"pytorch": "2.13.0", "megatron-core": "0.19.2", "nccl": "2.29.7", "aws-ofi-nccl": "1.21.1"},
        ),
        (
            "pytorch-2.12-cu130-py313-nemo-pypi",
            {"pytorch": "2.12.1", "nemo": "3.0.0", "cuda": "13.0", "nccl": "2.29.7"},
        ),
        (
            "pytorch-2.9-cu128-py312-apex",
            {"pytorch": "2.9.1", "apex": "25.09", "cuda": "12.8.1", "nvcc": "12.8.1"},
        ),
        (
            "pytorch-2.13-cu130-py312-transformer-engine",
            {"pytorch": "2.13.0", "transformer-engine": "2.20.2", "cudnn": "9.20.0.48", "nvcc": "13.0.3"},
        ),
        ("pytorch-cu130", {"pytorch": "2.13.0", "nccl": "2.29.7", "metis": "5.1.0", "rmm": "26.10.0"}),
    ],
)
def test_an_image_has_the_versions_it_is_for(name: str, versions: dict[str, str]) -> None:
    assert {part: resolved(name).version_of(part) for part in versions} == versions


def test_the_smp_image_fetches_from_where_its_publishers_put_things() -> None:
    urls = {
        f"{choice.name} {artifact.name}": artifact.source
        for choice in resolved(SMP_IMAGE).choices
        for artifact in choice.spec.artifacts
        if artifact.kind == "url"
    }
    assert urls == SMP_URLS


def test_the_smp_image_is_frozen_and_compiles_on_the_devel_base_alone() -> None:
    smp = image(SMP_IMAGE)
    assert recipes()[SMP_IMAGE].is_archived
    assert smp.build_base == "nvidia/cuda:11.3.1-cudnn8-devel-ubuntu20.04"
    assert isinstance(smp.base, RegistryBase)
    assert smp.base.reference == "nvidia/cuda:11.3.1-cudnn8-runtime-ubuntu20.04"


def test_the_smp_image_carries_the_settings_that_aws_asks_for() -> None:
    smp = image(SMP_IMAGE)
    assert smp.environment is not None
    assert smp.environment["SAGEMAKER_TRAINING_MODULE"] == "sagemaker_pytorch_container.training:main"
    assert smp.environment["RDMAV_FORK_SAFE"] == "1"
    assert smp.environment["DLC_CONTAINER_TYPE"] == "training"
    assert {"/opt/amazon/openmpi/bin", "/opt/amazon/efa/bin"} <= set(smp.path)
    assert {
        "/opt/amazon/openmpi/lib",
        "/opt/amazon/efa/lib",
        "/opt/venv/lib/python3.8/site-packages/smdistributed/dataparallel/lib",
    } <= set(smp.library_path)
    assert "SMDATAPARALLEL_PT=1 python3 -m pip" in dockerfile(SMP_IMAGE)


def test_smp_brings_what_it_is_linked_with() -> None:
    recipe = recipes()[SMP_IMAGE]
    components = tuple(component for component in recipe.components if component.name in ("python", "smp"))
    resolution = resolves(replace(recipe, components=components))
    assert resolution is not None
    brought = {choice.name for choice in resolution.choices}
    assert {"smddp", "metis", "librmm", "boost", "efa", "aws-ofi-nccl", "nccl", "mpi4py", "sshd"} <= brought


def test_vendor_images_have_the_known_problems_of_what_they_contain() -> None:
    problems = {
        name: [f"{problem.content}: {problem.reason}" for _, problem in resolution.warnings]
        for name, recipe in recipes().items()
        if re.fullmatch(r"pytorch-2.1[0-3]-cu130-.*-extended", name) and (resolution := resolves(recipe))
    }

    broadcast = (
        "efa 1.47.0: the plugin it brings, aws-ofi-nccl 1.18.0, hangs when NCCL broadcasts between hosts"
    )
    small = (
        "efa 1.49.0: the plugin it brings, aws-ofi-nccl 1.20.0, hangs now and then when NCCL receives small "
        "messages"
    )
    assert problems == {
        "pytorch-2.10-cu130-py313-extended": [broadcast],
        "pytorch-2.11-cu130-py312-extended": [small],
        "pytorch-2.12-cu130-py312-extended": [small],
        "pytorch-2.13-cu130-py312-extended": [small],
    }


@pytest.mark.parametrize(
    ("image_name", "part", "version"),
    [
        # EFA's installer dropped Ubuntu 20.04 at 1.43 and took 22.04 in at 1.18
        (SMP_IMAGE, "efa", "1.47.0"),
        ("pytorch-2.10-cu128-py312-efa", "efa", "1.14.1"),
        # SMP and SMDDP are for one PyTorch
        (SMP_IMAGE, "pytorch", "2.10.0"),
        # Wheels for a newer CUDA than the base's
        ("pytorch-2.10-cu128-py312-efa", "pytorch", "2.14.1"),
        # NCCL out of the plugin's reach, and a second plugin
        ("pytorch-2.10-cu128-py312-efa", "nccl", "2.10.3"),
        ("pytorch-2.10-cu128-py312-efa", "aws-ofi-nccl", "1.1.3"),
        # The order of network cards with the driver of EFA 1.35 and later
        ("pytorch-2.5-cu124-py311-smddp", "aws-ofi-nccl", "1.12.0"),
        # Extensions compiled for another PyTorch
        ("pytorch-2.10-cu128-py312-efa", "flash-attn", "2.8.3"),
        ("pytorch-2.9-cu128-py312-huggingface", "pytorch", "2.10.0"),
        ("pytorch-2.9-cu128-py312-huggingface", "xformers", "0.0.34"),
        # It compiles kernels for an architecture that nvcc 13 does not know
        ("pytorch-2.13-cu130-py312-transformer-engine", "apex", "25.09"),
        # For Python 3.12 and later
        ("pytorch-cpu", "megatron-core", "0.19.2"),
        # Another distribution's Python
        (SMP_IMAGE, "python", "3.12"),
        ("pytorch-cu130", "python", "3.8"),
    ],
)
def test_what_does_not_go_together_is_refused(image_name: str, part: str, version: str) -> None:
    recipe = recipes()[image_name]
    other = tuple(component for component in recipe.components if component.name != part)
    requirement = replace(recipe.base, name=part, specifier=f"=={version}")
    variants = {name: pattern for name, pattern in recipe.variants.items() if name != part}
    assert resolves(replace(recipe, components=(*other, requirement), variants=variants)) is None


@pytest.mark.parametrize(("pytorch", "is_possible"), [("2.10.0", False), ("2.11.0", True)])
def test_transformer_engine_needs_a_cudnn_that_older_pytorch_for_cuda_12_lacks(
    pytorch: str, is_possible: bool
) -> None:
    recipe = recipes()["pytorch-2.13-cu130-py312-transformer-engine"]
    other = tuple(component for component in recipe.components if component.name not in ("pytorch", "efa"))
    requirement = replace(recipe.base, name="pytorch", specifier=f"=={pytorch}")
    base = replace(recipe.base, specifier="==12.8.1")
    globs = {"nvidia-cuda": "runtime-ubuntu24.04", "pytorch": "cu128-*"}
    variants = {name: replace(recipe.variants[name], text=glob) for name, glob in globs.items()}
    changed = replace(recipe, base=base, components=(*other, requirement), variants=variants)

    assert (resolves(changed) is not None) is is_possible


def test_megatron_core_for_older_pythons_needs_an_older_transformer_engine() -> None:
    megatron = catalog().components["megatron-core"]
    bounds = {
        release.version: [
            str(constraint.specifier)
            for constraint in release.variants[0].spec.constraints
            if constraint.name == "transformer-engine"
        ]
        for release in megatron.releases
    }
    assert bounds == {"0.19.2": [], "0.16.1": [">=2.9,<2.12"]}


@pytest.mark.parametrize("name", ["pytorch-nemo-cpu", "pytorch-2.12-cu130-py313-nemo-pypi"])
def test_nemo_replaces_packages_of_pytorch_that_lightning_does_not_accept(name: str) -> None:
    resolution = resolves(recipes()[name])

    assert resolution
    versions = {
        package.name: Version(package.version)
        for packages in resolution.owners.values()
        for package in packages
    }
    assert versions["lightning"] <= Version("2.4.0")
    assert versions["fsspec"] < Version("2026")
    assert versions["packaging"] < Version("25")
    assert "fsspec" in {package.name for package in resolution.owners["pytorch"]}


@pytest.mark.parametrize(("efa", "is_possible"), [("1.28.0", False), ("1.29.1", True)])
def test_libfabric_of_an_older_efa_cannot_register_memory(efa: str, is_possible: bool) -> None:
    """https://github.com/aws/aws-ofi-nccl/issues/584."""
    recipe = recipes()["pytorch-2.2-cu121-py310-smddp"]
    requirement = replace(recipe.base, name="efa", specifier=f"=={efa}")
    changed = replace(recipe, components=(*without(recipe, "efa"), requirement))
    if is_possible:
        assert resolve(changed, catalog()).version_of("nccl") == "2.19.3"
        return
    error = raised(Unsatisfiable, resolve, changed, catalog())

    facts = [reason.text for reason in conflict_error(error.conflict, catalog()).diagnostics[0].reasons]
    assert f"efa {efa}: its libfabric can't register memory for NCCL 2.19 and later" in facts


def test_the_components_without_checksums_are_known() -> None:
    unpinned = {
        candidate.name
        for candidate in candidates()
        for artifact in candidate.spec.artifacts
        if artifact.sha256 is None
    }
    assert unpinned == UNPINNED


def test_the_bases_without_a_digest_are_known() -> None:
    unpinned = {
        candidate.name
        for candidate in candidates()
        if candidate.spec.base and candidate.spec.base.reference and candidate.spec.base.digest is None
    }
    assert unpinned == UNPINNED_BASES


@pytest.mark.parametrize("name", IMAGES)
def test_a_dockerfile_says_what_is_not_pinned(name: str) -> None:
    planned = image(name)
    expected = {f"{artifact.file} has no recorded sha256" for artifact in planned.unpinned}
    if isinstance(planned.base, RegistryBase) and planned.base.digest is None:
        expected.add(f"{planned.base.reference} has no recorded digest")
    assert {*re.findall(r"^# NOT PINNED: (.+?), so ", dockerfile(name), re.M)} == expected


@pytest.mark.parametrize("name", COMPONENTS)
def test_addresses_have_tls_or_a_note_that_says_why_not(name: str) -> None:
    plain = [around for around in mappings(raw(name)) if str(around[-1].get("url", "")).startswith("http://")]
    assert all("TLS" in str(around[-1].get("notes", around[-3].get("notes"))) for around in plain)


@pytest.mark.parametrize("name", COMPONENTS)
def test_each_release_names_its_source(name: str) -> None:
    releases = [around[-1] for around in mappings(raw(name)) if "version" in around[-1]]
    sources = [str(release.get("source", "none")) for release in releases]
    assert [source for source in sources if urlsplit(source).scheme not in ("http", "https")] == []


@pytest.mark.parametrize("name", COMPONENTS)
def test_each_lock_is_made_from_what_its_component_says(name: str) -> None:
    for release in catalog().components[name].releases:
        for variant in release.variants:
            lock = variant.spec.lock
            if lock and lock.requirements:
                python = python_of(variant.spec)
                assert python is not None
                assert (lock.path.name, lock.first_line) == (lock.path.name, lock.heading(python))


@pytest.mark.parametrize("name", COMPONENTS)
def test_a_build_provides_what_its_lock_has(name: str) -> None:
    upstream = catalog().components[name].upstream
    patterns = upstream.provides if upstream and upstream.kind == "pypi" else {}
    for candidate in candidates():
        for copy, pattern in patterns.items() if candidate.name == name else ():
            for package in candidate.spec.packages:
                if fnmatchcase(package.name, pattern):
                    provided = candidate.spec.provides.get(copy, "nothing")
                    assert f"{package.version}.".startswith(f"{provided}."), (candidate.variant.name, package)


@pytest.mark.parametrize("name", COMPONENTS)
def test_no_file_of_a_component_is_an_orphan(name: str) -> None:
    directory = RECIPES / "components" / name
    named = {str(around[-1]["lock"]) for around in mappings(raw(name)) if "lock" in around[-1]}
    patterns = {re.sub(r"\$\{.*?\}", "*", lock) for lock in named}
    files = {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}
    files -= {path for path in files if "__pycache__" in path or path.startswith("files/")}
    files -= {path for path in files if path.startswith("stubs/")}
    files -= {"component.yaml", "install.j2", "smoke.py", "gpu.py"}
    files -= {"parameters.yaml"} if name in ("smp", "aws-smp2") else set()
    files -= {"toolkit.yaml"} if name in (*TOOLKITS, DRIVERS) else set()
    files -= {"torchrun.yaml"} if name == "pytorch" else set()
    files -= {"keras.yaml"} if name == "tensorflow" else set()
    variants = [variant for release in catalog().components[name].releases for variant in release.variants]
    locks = [variant.spec.lock for variant in variants if variant.platform == ARM64]
    files -= {str(lock.path.relative_to(directory)) for lock in locks if lock}
    assert {path for path in files if not any(fnmatchcase(path, pattern) for pattern in patterns)} == set()


@pytest.mark.parametrize("name", COMPONENTS)
def test_stubs_are_for_files_that_a_component_names(name: str) -> None:
    variants = [variant for release in catalog().components[name].releases for variant in release.variants]
    stubs = {path.name for path in (RECIPES / "components" / name).glob("stubs/*")}
    stubs -= {artifact.name for variant in variants for artifact in variant.spec.artifacts}
    if stubs:
        stubs -= {
            canonicalize_name(package.name) for variant in variants for package in variant.spec.packages
        }
    assert stubs == set()


@pytest.mark.parametrize("name", [name for name in COMPONENTS if name != INSTANCE])
def test_each_component_can_be_checked(name: str) -> None:
    assert catalog().components[name].smoke == RECIPES / "components" / name / "smoke.py"


@pytest.mark.parametrize("name", IMAGES)
def test_the_order_of_layers_is_not_left_to_names(name: str) -> None:
    orders = [choice.candidate.component.stage_order for choice in resolved(name).choices]
    assert len(orders) == len(set(orders))


def test_what_a_stage_builds_on_comes_before_it_and_is_required() -> None:
    for candidate in candidates():
        for below in candidate.component.builds_on:
            assert catalog().components[below].stage_order < candidate.component.stage_order
            assert below in {requirement.name for requirement in candidate.spec.requires}


@pytest.mark.parametrize("name", IMAGES)
def test_each_wheel_fits_the_python_and_the_libc_of_the_image(name: str) -> None:
    resolution = resolved(name)
    packages = [
        *resolution.user_packages,
        *(package for choice in resolution.choices for package in choice.spec.packages),
    ]
    wheels = {package.file for package in packages if not package.is_sdist}
    python, glibc = resolution.version_of("python"), resolution.version_of("glibc")
    assert not wheels or (python and glibc)
    machine = {PLATFORM: "x86_64", ARM64: "aarch64"}[resolution.recipe.platform]
    misfits = [
        file
        for file in sorted(wheels)
        if not any(fits(tag, str(python), str(glibc), machine) for tag in parse_wheel_filename(file)[3])
    ]
    assert misfits == []


def fits(tag: Tag, python: str, glibc: str, machine: str) -> bool:
    minor = int(python.split(".")[1])
    own = tag.interpreter == f"cp3{minor}"
    stable = tag.abi == "abi3" and int(tag.interpreter.removeprefix("cp3")) <= minor
    pure = {"py3", "py2", *(f"py3{older}" for older in range(minor + 1))}
    if not (own or stable or (tag.abi == "none" and tag.interpreter in pure)):
        return False
    legacy = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}
    if match := re.fullmatch(rf"manylinux_(\d+)_(\d+)_{machine}", tag.platform):
        return Version(f"{match[1]}.{match[2]}") <= Version(glibc)
    version = legacy.get(tag.platform.removesuffix(f"_{machine}"))
    return tag.platform == "any" or (version is not None and Version(version) <= Version(glibc))


@pytest.mark.parametrize("name", IMAGES)
def test_a_dockerfile_takes_from_nothing_but_stages_above_and_its_bases(name: str) -> None:
    planned, stages = image(name), {"scratch"}
    bases = {
        planned.build_base,
        planned.base.pinned if isinstance(planned.base, RegistryBase) else planned.base.reference,
    }
    for instruction in instructions(dockerfile(name)):
        for taken in sources(instruction):
            assert taken in stages or (instruction.word == "FROM" and taken in bases), instruction
        if instruction.word == "FROM":
            stages.add(instruction.rest.split()[2])


def sources(instruction: Instruction) -> list[str]:
    """The stages or images that an instruction takes something from."""
    if instruction.word == "FROM":
        return [instruction.rest.split()[0]]
    return re.findall(r"(?:^|[ ,-])from=([^ ,]+)", instruction.rest)


@pytest.mark.parametrize("name", IMAGES)
def test_nothing_runs_after_the_first_linked_layer(name: str) -> None:
    words = [
        "link" if instruction.word == "COPY" and "--link" in instruction.rest else instruction.word
        for instruction in instructions(dockerfile(name))
    ]
    after = words[words.index("link") :] if "link" in words else []
    assert "RUN" not in after


@pytest.mark.parametrize("name", IMAGES)
def test_a_dockerfile_names_no_host_but_those_of_its_own_files(name: str) -> None:
    """Indexes and the distribution's mirrors are the business of the machine that builds."""
    texts = [file.content.decode() for file in rendered() if file.path.startswith(f"{name}/")]
    assert texts
    for text in texts:
        assert {urlsplit(url).hostname for url in re.findall(r"https?://[^\s'\"\[]+", text)} <= hosts()


@pytest.mark.parametrize("name", IMAGES)
def test_the_image_that_ships_starts_from_no_devel_base(name: str) -> None:
    assert "devel" not in image(name).base.reference


def test_apt_sources_go_from_bases_that_cannot_refresh_them_alone() -> None:
    """NVIDIA's images from before it changed its key: newer ones would lose their distribution's sources."""
    sources = "/etc/apt/sources.list.d/cuda.list /etc/apt/sources.list.d/nvidia-ml.list"
    line = f"rm -f {sources} && \\\n    apt-get update"
    old = {name for name in IMAGES if line in dockerfile(name)}

    assert old == {
        name
        for name in IMAGES
        for base in [resolved(name).base]
        if base.name == "nvidia-cuda" and Version(base.version) < Version("11.7")
    }
    assert old
    assert not [name for name in IMAGES if name not in old and "rm -f /etc/apt/sources" in dockerfile(name)]


@pytest.mark.parametrize(
    ("name", "torchvision", "torchaudio"),
    [
        ("pytorch-cu130", "0.28.0", "2.11.0"),
        ("pytorch-2.10-cu128-py312-efa", "0.25.0", "2.10.0"),
        ("pytorch-2.15-cu132-py312-efa", "0.29.2", None),
        ("pytorch-2.5-cu124-py311-smddp", "0.20.1", "2.5.1"),
        ("pytorch-cpu", None, None),
    ],
)
def test_pytorch_brings_the_libraries_compiled_against_it(
    name: str, torchvision: str | None, torchaudio: str | None
) -> None:
    resolution = resolved(name)
    assert (resolution.version_of("torchvision"), resolution.version_of("torchaudio")) == (
        torchvision,
        torchaudio,
    )


@pytest.mark.parametrize(
    ("name", "wheel"),
    [
        ("pytorch-2.5-cu124-py311-smddp", "flash_attn-2.8.3+cu12torch2.5cxx11abiFALSE-cp311-cp311"),
        ("pytorch-2.9-cu128-py312-huggingface", "flash_attn-2.8.3+cu12torch2.9cxx11abiTRUE-cp312-cp312"),
    ],
)
def test_flash_attention_has_the_abi_of_pytorch(name: str, wheel: str) -> None:
    recipe = recipes()[name]
    others = tuple(component for component in recipe.components if component.name != "flash-attn")
    flash = replace(recipe.base, name="flash-attn", specifier="")
    resolution = resolve(replace(recipe, components=(*others, flash)), catalog())
    assert f"{wheel}-linux_x86_64.whl" in [
        artifact.file for choice in resolution.choices for artifact in choice.spec.artifacts
    ]


def test_a_cpu_image_takes_wheels_that_load_without_cuda() -> None:
    recipe = recipes()["pytorch-cpu"]
    added = [replace(recipe.base, name=name, specifier="") for name in ("torchvision", "torchaudio")]
    resolution = resolve(replace(recipe, components=(*recipe.components, *added)), catalog())
    variants = {choice.name: choice.candidate.variant.name for choice in resolution.choices}
    assert (variants["torchvision"], variants["torchaudio"]) == ("cpu-stubs-py311", "cpu-stubs-py311")


def test_a_cpu_image_has_both_libraries_where_all_checksums_are_known() -> None:
    recipe = recipes()["pytorch-cpu"]
    names = ("open-mpi", "mpi4py", "pytorch")
    components = [requirement for requirement in recipe.components if requirement.name in names]
    python = replace(recipe.base, name="python", specifier="==3.12")
    resolution = resolve(replace(recipe, components=(python, *components)), catalog())
    wheels = [
        artifact
        for choice in resolution.choices
        if choice.name in ("pytorch", "torchvision", "torchaudio")
        for artifact in choice.candidate.spec.artifacts
    ]
    assert len(wheels) == 3
    assert all(wheel.sha256 for wheel in wheels)


def test_components_that_are_compiled_with_cuda_require_its_compiler() -> None:
    templates = RECIPES.glob("components/*/install.j2")
    # The argument of a build that names the directory of the toolkit
    compiled = {path.parent.name for path in templates if "=/usr/local/cuda" in path.read_text()}
    assert {"aws-ofi-nccl", "horovod-nccl", "librmm", "nccl", "nccl-tests"} <= compiled
    for name in compiled:
        for spec in catalog().components[name].specs:
            required = {requirement.name for requirement in spec.requires}
            assert required & {"nvcc", "cuda-nvcc"}, spec


def test_components_that_are_compiled_ship_their_licence_texts() -> None:
    templates = {path.parent.name: path.read_text() for path in RECIPES.glob("components/*/install.j2")}
    compiled = {
        name
        for name, text in templates.items()
        if re.search(rf"FROM (toolchain|efa-installer) AS {name}\n", text)
    }
    compiled -= {"cuda-compat", "sshd"}  # They only place files
    compiled.remove("cuda-stubs")  # Its code is Bakehouse's own
    kept = {name for name, text in templates.items() if re.search(rf"keep-licences {name}\b", text)}
    assert kept == compiled


def test_a_neuron_image_is_for_neuroncores_and_not_for_gpus() -> None:
    planned = image("pytorch-2.9-neuron2.30-py312-extended")
    assert (planned.gpu, planned.neuron_architecture) == (False, ">=2,<5")
    targets = {target.variant.name for target in resolved(planned.name).targets}
    assert targets == {"ml.trn1.32xlarge", "ml.trn2.48xlarge"}


def test_every_file_of_a_component_has_a_stage() -> None:
    missing = {
        f"{name}: {choice.name}"
        for name in IMAGES
        for choice in resolved(name).choices
        if choice.spec.artifacts and choice.name not in {stage.name for stage in image(name).stages}
    }
    assert missing == set()
