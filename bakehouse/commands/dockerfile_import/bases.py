"""Recognition of base images: those of the catalogue, and the contents of others by their names."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.component import BaseSource, Component
from bakehouse.catalog.names import FRAMEWORKS
from bakehouse.commands.dockerfile_import.index import distance
from bakehouse.commands.dockerfile_import.installs import names

DEFAULT_BASE = ("debian", "12")
_ECR = re.compile(r"(?P<account>\d{12})\.dkr\.ecr(?:-fips)?\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?")
_ANY_REGION = re.compile(r"(763104351884\.dkr\.ecr\.)\$(?:\{\w+\}|\w+)(?=\.amazonaws\.com/)")
"""AWS's account of most regions, with a build argument without a default as the region."""
_PUBLIC_ECR = "public.ecr.aws/deep-learning-containers/"
_SUITES = {"12": r"(?:12|bookworm)(?!\d)", "13": r"(?:13|trixie)(?!\d)"}
_OTHER_SUITE = re.compile("buster|bullseye|stretch|alpine|windows")
_TAG_PART = re.compile(
    r"cudnn|runtime|gpu|cpu|py\d+|cu\d+|ubuntu[\d.]+|amzn\d+|sdk[\d.]+|ec2|sagemaker|neuronx?"
)


_PYTHONS = names("pythons")
"""The version of python3 in distributions: https://packages.ubuntu.com/python3, https://packages.debian.org/python3"""


def python_of(image: str) -> str:
    """Return the version of python3 in an image of a distribution, or on one; empty if it is not known."""
    name = image.removeprefix("docker.io/").removeprefix("library/").partition("@")[0]
    if match := re.match(
        r"(?:.*/)?(?:cuda:.*)?\b(ubuntu|debian)-?:?([\d.]+|[a-z]+)", name.replace("-slim", "")
    ):
        return _PYTHONS.get(f"{match[1]}:{match[2]}", "")
    return ""


def working_directory(image: str) -> str:
    """Return the directory that an image sets with WORKDIR; empty if it is not known."""
    known = names("working_directories").items()
    return next((path for pattern, path in known if re.fullmatch(pattern, image.partition("@")[0])), "")


def sets_no_variables(image: str) -> bool:
    """Return whether an image is known to set only PATH."""
    return bool(re.fullmatch(r"scratch|(?:docker\.io/)?(?:library/)?(?:debian|ubuntu)(?:[:@].*)?", image))


@dataclass(frozen=True, slots=True)
class BaseChoice:
    """A base component that may replace the image of FROM."""

    component: str
    version: str
    variant: str = ""
    note: str = ""
    """Difference from the image of the Dockerfile; empty if there is none."""
    detail: str = ""
    """Remark about a base that does not differ."""


@dataclass(frozen=True, slots=True)
class KnownImage:
    """Bases and components that the reference of a base image stands for."""

    choices: tuple[BaseChoice, ...]
    """The most faithful first."""
    region: str = ""
    wishes: tuple[tuple[str, str, str], ...] = ()
    """Components that the image contains but the chosen base may lack: name, specifier, variant."""
    is_unknown: bool = False
    """True if the catalogue does not describe the image."""


def find_base(reference: str, catalog: Catalog) -> KnownImage:
    """Return the bases that may replace an image."""
    plain, _, digest = reference.partition("@")
    note = "; `bake lock` pins the digest" if digest else ""
    region = ""
    plain = _ANY_REGION.sub(r"\1us-east-1", plain)
    if variable := re.search(r"\$\{?(\w+)", plain):
        name = variable[1]
        note = f"the Dockerfile does not say the value of {name}; give it with `--build-arg {name}=VALUE`"
        plain_bases = (BaseChoice(*DEFAULT_BASE, "", note), BaseChoice("debian", "13", "", note))
        return KnownImage(plain_bases, is_unknown=True)
    is_any_region = plain != reference.partition("@")[0]
    if own := [*_exact(plain, catalog)]:
        return KnownImage(tuple(own))
    if match := _ECR.match(plain):
        known = {
            host
            for component in catalog.components.values()
            if component.registries
            for host in component.registries.hosts.values()
        }
        region = "" if is_any_region else match["region"]
        if match[0].replace("ecr-fips", "ecr") not in known:
            repository = plain[match.end() + 1 :].partition(":")[0]
            text = f"the catalogue does not describe `{repository}` of registry {match['account']}"
            return _default(reference, text)
        plain = plain[match.end() + 1 :]
    plain = plain.removeprefix(_PUBLIC_ECR)
    for prefix in ("docker.io/", "index.docker.io/", "registry-1.docker.io/", "library/"):
        plain = plain.removeprefix(prefix)
    plain = plain.removeprefix("public.ecr.aws/docker/library/")
    plain = plain.replace("nvcr.io/nvidia/cuda:", "nvidia/cuda:", 1)
    name, _, tag = plain.rpartition(":") if ":" in plain.rpartition("/")[2] else (plain, "", "")
    choices = (*_exact(plain, catalog), *_similar(name, tag, reference.partition("@")[0], catalog))
    if choices:
        return KnownImage(tuple(dict.fromkeys(choices)), region)
    return _public(reference, name, tag, note)


def _bases(catalog: Catalog) -> Iterator[tuple[Component, str, str, BaseSource]]:
    """Yield all bases of the catalogue with their components, versions and variants."""
    for component in catalog.components.values():
        for release in component.releases if component.is_base else ():
            for variant in release.variants:
                if variant.spec.base and variant.spec.base.reference:
                    yield component, release.version, variant.name, variant.spec.base


def _exact(plain: str, catalog: Catalog) -> Iterator[BaseChoice]:
    """Yield the variants that are, or are built with, an image."""
    found: list[tuple[int, BaseChoice]] = []
    known = {(component.name, version, variant) for component, version, variant, _ in _bases(catalog)}
    for component, version, variant, base in _bases(catalog):
        choice, rank = BaseChoice(component.name, version, variant), 0
        if base.reference.partition("@")[0].removeprefix("docker.io/") != plain:
            if base.build_reference.partition("@")[0] != plain:
                continue
            # Its libraries are those of the devel image; the base images have fewer.
            rank = 1 if "runtime" in variant else 2
            choice = replace(choice, detail="compilers stay in the build stages")
        found.append((rank, choice))
        # Wheels of frameworks bring a cuDNN of their own, in another version
        name = variant.removeprefix("cudnn-")
        if name != variant and (component.name, version, name) in known:
            detail = "; ".join(filter(None, (choice.detail, "cuDNN comes with the framework")))
            found.append((3, replace(choice, variant=name, detail=detail)))
    yield from (choice for _, choice in sorted(found, key=lambda item: item[0]))


def _similar(name: str, tag: str, reference: str, catalog: Catalog) -> Iterator[BaseChoice]:
    """Yield variants of the same repository, the nearest first."""
    version = _leading_version(tag)
    parts = {*_TAG_PART.findall(tag.replace("devel", "runtime"))}
    found: list[tuple[tuple[object, ...], BaseChoice]] = []
    for component, release, variant, base in _bases(catalog):
        own_name, _, own_tag = base.reference.rpartition(":")
        own = {*_TAG_PART.findall(own_tag)}
        if own_name != name or component.name == "debian" or {_is_gpu(parts), _is_gpu(own)} == {True, False}:
            continue
        own_version = _leading_version(own_tag) or release
        # Parts of the tag that differ in the catalogue's image; a short tag leaves some out.
        kinds = {_kind(part) for part in own}
        different = {part for part in parts - own if _kind(part) in kinds or part == "ec2"} - {"sagemaker"}
        is_same = own_version == version or (version.count(".") < 2 and own_version.startswith(f"{version}."))
        others = sorted(different - {"ec2"})
        notes = {
            "the tag has no version": not version,
            f"the catalogue has {own_version} as the nearest": version and not is_same,
            "an -ec2 tag is the image without SageMaker's toolkit; the recipe starts from -sagemaker": "ec2"
            in different,
            f"the catalogue's image differs in {', '.join(others)}": others,
        }
        note = "; ".join(text for text, applies in notes.items() if applies)
        flavours = {"cudnn", "runtime"}
        distances = distance(own_version, version), len(different) + len((parts ^ own) & flavours)
        found.append(((not is_same, *distances, variant), BaseChoice(component.name, release, variant, note)))
    found.sort(key=lambda item: item[0])
    exact = [choice for key, choice in found if not key[0]]
    # Another version is a choice only if the catalogue lacks this one.
    advice = f"; run `bake init --base {reference}` to describe the image itself"
    yield from exact or [replace(choice, note=f"{choice.note}{advice}") for _, choice in found[:6]]


def _leading_version(tag: str) -> str:
    return match[1] if (match := re.match(r"v?(\d+(?:\.\d+)*)", tag)) else ""


def _kind(part: str) -> str:
    if part in ("gpu", "cpu"):
        return "device"
    kind = re.sub(r"[\d.]+$", "", part)
    return "system" if kind in ("ubuntu", "amzn") else kind


def _is_gpu(parts: set[str]) -> bool | None:
    """Return whether the parts of a tag name GPUs; None if they name neither GPUs nor CPUs."""
    if "cpu" in parts:
        return False
    return True if "gpu" in parts or any(part.startswith("cu") for part in parts) else None


def _public(reference: str, name: str, tag: str, note: str) -> KnownImage:
    """Return the base for public images that the catalogue builds in another way."""
    version = _leading_version(tag)
    suites = [suite for suite, form in _SUITES.items() if re.match(form, tag)]
    if name == "debian" and suites:
        return KnownImage((BaseChoice("debian", suites[0], "", "", f"Bakehouse bootstraps it{note}"),))
    if name == "python" and version:
        other = _OTHER_SUITE.search(tag)
        text = (
            other and f"its distribution {other[0]} is not in the catalogue; the recipe starts from Debian 12"
        )
        minor = ".".join(version.split(".")[:2])
        choices = [BaseChoice("debian", suite, "", text or "") for suite in ("12", "13")]
        wish = "python", f"=={minor}.*" if "." in minor else "", ""
        return KnownImage(tuple(choices[::-1] if "trixie" in tag else choices), wishes=(wish,))
    if own := next((known for known in FRAMEWORKS.items() if name == known[1].image), None):
        component, wheels = own[0], own[1].wheels
        cuda = re.search(r"cuda(\d+)\.(\d+)", tag)
        device = "cuda-*" if "gpu" in tag else "cpu-*"
        if component == "pytorch":
            device = f"cu{cuda[1]}{cuda[2]}-*" if cuda else "cu*"
        text = f"the recipe installs {wheels} on Debian 12"
        text += "; compilers stay in the build stages" if "devel" in tag else ""
        bases = tuple(BaseChoice("debian", suite, "", "", text) for suite in ("12", "13"))
        return KnownImage(bases, wishes=((component, f"=={version}" if version else "", device),))
    if name in ("ubuntu", "debian"):
        return _default(reference, f"the catalogue has no {name} {tag or 'latest'} without a framework", True)
    if re.search(r"conda|mamba|miniforge", name):
        return _default(reference, "Bakehouse installs Python and its packages without conda", True)
    return _default(reference, "the catalogue does not contain this image")


def _default(reference: str, reason: str, is_plain: bool = False) -> KnownImage:
    advice = "" if is_plain else f"; run `bake init --base {reference.partition('@')[0]}` to describe it"
    note = f"{reason}, so the recipe starts from Debian 12{advice}"
    choices = (BaseChoice(*DEFAULT_BASE, "", note), BaseChoice("debian", "13", "", note))
    return KnownImage(choices, is_unknown=not is_plain)
