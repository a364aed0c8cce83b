"""Recognition of base images: those of the catalogue, and the contents of others by their names."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from bakehouse.catalog.catalog import Catalog
from bakehouse.commands.dockerfile_import.index import distance
from bakehouse.commands.dockerfile_import.installs import names

DEFAULT_BASE = ("debian", "12")
_ECR = re.compile(r"(?P<account>\d{12})\.dkr\.ecr(?:-fips)?\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?")
_ANY_REGION = re.compile(r"(763104351884\.dkr\.ecr\.)\$(?:\{\w+\}|\w+)(?=\.amazonaws\.com/)")
"""AWS's account of most regions, with a build argument without a default as the region."""
_PUBLIC_ECR = "public.ecr.aws/deep-learning-containers/"
_SUITES = {"12": ("12", "bookworm"), "13": ("13", "trixie")}
_TAG_PART = re.compile(
    r"cudnn|runtime|gpu|cpu|py\d+|cu\d+|ubuntu[\d.]+|amzn\d+|sdk[\d.]+|ec2|sagemaker|neuronx?"
)


_PYTHONS = names("pythons")
"""The version of python3 in distributions: https://packages.ubuntu.com/python3, https://packages.debian.org/python3"""


def python_of(image: str) -> str:
    """Return the version of python3 in an image of a distribution, or on one; empty if it is not known."""
    name = image.removeprefix("docker.io/").removeprefix("library/").partition("@")[0]
    if match := re.search(r"(ubuntu|debian)-?:?([\d.]+|[a-z]+)", name.replace("-slim", "")):
        return _PYTHONS.get(f"{match[1]}:{match[2]}", "")
    return ""


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


def _exact(plain: str, catalog: Catalog) -> Iterator[BaseChoice]:
    """Yield the variants that are, or are built with, an image."""
    same: list[BaseChoice] = []
    built: list[BaseChoice] = []
    plainer: list[BaseChoice] = []
    for component in catalog.components.values():
        for release in component.releases if component.is_base else ():
            names = {variant.name for variant in release.variants}
            for variant in release.variants:
                base = variant.spec.base
                if base is None or not base.reference:
                    continue
                choice = BaseChoice(component.name, release.version, variant.name)
                if base.reference.partition("@")[0].removeprefix("docker.io/") == plain:
                    same.append(choice)
                elif base.build_reference.partition("@")[0] == plain:
                    choice = replace(choice, detail="compilers stay in the build stages")
                    # Its libraries are those of the devel image; the base images have fewer.
                    built.insert(0 if "runtime" in variant.name else len(built), choice)
                else:
                    continue
                # Wheels of frameworks bring a cuDNN of their own, in another version
                if (name := variant.name.removeprefix("cudnn-")) != variant.name and name in names:
                    detail = "; ".join(filter(None, (choice.detail, "cuDNN comes with the framework")))
                    plainer.append(replace(choice, variant=name, detail=detail))
    yield from (*same, *built, *plainer)


def _similar(name: str, tag: str, reference: str, catalog: Catalog) -> Iterator[BaseChoice]:
    """Yield variants of the same repository, the nearest first."""
    version = match[0] if (match := re.match(r"v?\d+(\.\d+)*", tag)) else ""
    parts = {*_TAG_PART.findall(tag.replace("devel", "runtime"))}
    found: list[tuple[tuple[object, ...], BaseChoice]] = []
    for component in catalog.components.values():
        if not component.is_base or component.name == "debian":
            continue
        for release in component.releases:
            for variant in release.variants:
                base = variant.spec.base
                if base is None:
                    continue
                own_name, _, own_tag = base.reference.rpartition(":")
                if own_name != name:
                    continue
                own = {*_TAG_PART.findall(own_tag)}
                if _is_gpu(parts) is not None and _is_gpu(own) not in (None, _is_gpu(parts)):
                    continue
                found.append(
                    _rank(component.name, release.version, variant.name, version, own_tag, parts, own)
                )
    found.sort(key=lambda item: item[0])
    exact = [choice for key, choice in found if not key[0]]
    # Another version is a choice only if the catalogue lacks this one.
    yield from exact or [
        replace(
            choice, note=f"{choice.note}; run `bake init --base {reference}` to describe the image itself"
        )
        for _, choice in found[:6]
    ]


def _rank(
    component: str, release: str, variant: str, version: str, own_tag: str, parts: set[str], own: set[str]
) -> tuple[tuple[object, ...], BaseChoice]:
    own_version = match[0] if (match := re.match(r"\d+(\.\d+)*", own_tag)) else release
    # Parts of the tag that differ in the catalogue's image; a short tag leaves some out.
    kinds = {_kind(part) for part in own}
    different = {part for part in parts - own if _kind(part) in kinds or part == "ec2"} - {"sagemaker"}
    is_same = own_version == version or (version.count(".") < 2 and own_version.startswith(f"{version}."))
    notes = []
    if not version:
        notes.append("the tag has no version")
    elif not is_same:
        notes.append(f"the catalogue has {own_version} as the nearest")
    if "ec2" in different:
        notes.append(
            "an -ec2 tag is the image without SageMaker's toolkit; the recipe starts from -sagemaker"
        )
    if others := sorted(different - {"ec2"}):
        notes.append(f"the catalogue's image differs in {', '.join(others)}")
    choice = BaseChoice(component, release, variant, "; ".join(notes))
    flavours = {"cudnn", "runtime"}
    return (
        not is_same,
        distance(own_version, version),
        len(different) + len((parts ^ own) & flavours),
        variant,
    ), choice


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
    version = match[0] if (match := re.match(r"\d+(\.\d+)*", tag)) else ""
    short = name.rpartition("/")[2]
    if name == "debian" or name == "buildpack-deps":
        for suite, names in _SUITES.items():
            if re.match(rf"(?:{'|'.join(names)})(?![0-9])", tag) and name == "debian":
                return KnownImage((BaseChoice("debian", suite, "", "", f"Bakehouse bootstraps it{note}"),))
    if name == "python" and version:
        other = next(
            (suite for suite in ("buster", "bullseye", "stretch", "alpine", "windows") if suite in tag), ""
        )
        text = (
            f"its distribution {other} is not in the catalogue; the recipe starts from Debian 12"
            if other
            else ""
        )
        minor = ".".join(version.split(".")[:2])
        suites = ("13", "12") if "trixie" in tag else ("12", "13")
        return KnownImage(
            tuple(BaseChoice("debian", suite, "", text) for suite in suites),
            wishes=(("python", f"=={minor}.*" if "." in minor else "", ""),),
        )
    if short == "pytorch" and name == "pytorch/pytorch":
        cuda = f"cu{match[1].replace('.', '')}-*" if (match := re.search(r"cuda(\d+\.\d+)", tag)) else "cu*"
        text = "the recipe installs PyTorch's own wheels on Debian 12"
        text += "; compilers stay in the build stages" if "devel" in tag else ""
        return KnownImage(
            (BaseChoice(*DEFAULT_BASE, "", "", text), BaseChoice("debian", "13", "", "", text)),
            wishes=(("pytorch", f"=={version}" if version else "", cuda),),
        )
    if name == "tensorflow/tensorflow":
        device = "cuda-*" if "gpu" in tag else "cpu-*"
        text = "the recipe installs TensorFlow's own wheel on Debian 12"
        return KnownImage(
            (BaseChoice(*DEFAULT_BASE, "", "", text),),
            wishes=(("tensorflow", f"=={version}" if version else "", device),),
        )
    if short in ("ubuntu", "debian") and name in ("ubuntu", "debian"):
        return _default(reference, f"the catalogue has no {name} {tag or 'latest'} without a framework", True)
    if re.search(r"conda|mamba|miniforge", name):
        return _default(reference, "Bakehouse installs Python and its packages without conda", True)
    return _default(reference, "the catalogue does not contain this image")


def _default(reference: str, reason: str, is_plain: bool = False) -> KnownImage:
    advice = "" if is_plain else f"; run `bake init --base {reference.partition('@')[0]}` to describe it"
    note = f"{reason}, so the recipe starts from Debian 12{advice}"
    choices = (BaseChoice(*DEFAULT_BASE, "", note), BaseChoice("debian", "13", "", note))
    return KnownImage(choices, is_unknown=not is_plain)
