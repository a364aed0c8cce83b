"""Options of requirements files: indexes, and the builds of PyTorch that a component installs."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from packaging.requirements import Requirement as Parsed
from packaging.specifiers import SpecifierSet

from bakehouse.catalog.requirements_file import RequiredPackage, Requirements
from bakehouse.lock.python import Index
from bakehouse.resolve.resolver import Resolution

_PYTORCH = "pytorch"


def build_of_pytorch(resolution: Resolution) -> str | None:
    """Return the build of PyTorch that a component installs, such as `cu128`; None without one."""
    variants = (choice.candidate.variant.name for choice in resolution.choices if choice.name == _PYTORCH)
    return next((name.partition("-")[0] for name in variants), None)


def with_options(index: Index, requirements: Requirements, resolution: Resolution) -> Index:
    """Return the indexes with those that the requirements name, and with other options for uv.

    An index of PyTorch is not searched if a component installs PyTorch.
    """
    pip = index.pip
    options: list[str] = []
    for option in requirements.options:
        match option.name:
            case "--index-url":
                pip = replace(pip, index_url=option.value)
            case "--extra-index-url":
                pip = replace(pip, extra_index_urls=(*pip.extra_index_urls, option.value))
            case "--find-links":
                pip = replace(pip, find_links=(*pip.find_links, option.value))
            case "--no-index":
                pip = replace(pip, no_index=True)
            case "--pre":
                options.append("--prerelease=allow")
            case _:
                options += chain.from_iterable((option.name, name) for name in option.value.split(","))
    if build_of_pytorch(resolution) is None:
        urls = (torch.url for torch in requirements.torch_indexes)
        pip = replace(pip, extra_index_urls=tuple(dict.fromkeys((*pip.extra_index_urls, *urls))))
    searched = index.pip if pip != index.pip else None
    return replace(index, pip=pip, options=tuple(options), searched_by_builds=searched)


def unused_indexes(requirements: Requirements, resolution: Resolution) -> Iterator[str]:
    """Yield texts about indexes of PyTorch for another build than that of the image."""
    build = build_of_pytorch(resolution)
    for index in requirements.torch_indexes:
        if build and index.build not in ("", build):
            place = f"line {index.location.line} of {index.location.path.name}"
            yield f"PyTorch is for {build}; the index for {index.build} in {place} is not searched"


def without_build_labels(requirements: Requirements, resolution: Resolution) -> Requirements:
    """Return requirements such as `torch==2.9.1+cu128` without a label that the image's version lacks.

    Wheels of the package index have no label, although they are for one CUDA.
    """
    build = build_of_pytorch(resolution)
    versions = {
        name: package.version
        for choice in resolution.choices
        for name, package in choice.candidate.packages.items()
    }

    def plain(line: RequiredPackage) -> RequiredPackage:
        version = versions.get(line.name, "+")
        if build is None or "+" in version or f"+{build}" not in line.text:
            return line
        parsed = Parsed(line.text)
        parsed.specifier = SpecifierSet(str(parsed.specifier).replace(f"+{build}", ""))
        return replace(line, text=str(parsed))

    return replace(
        requirements,
        packages=tuple(map(plain, requirements.packages)),
        constraints=tuple(map(plain, requirements.constraints)),
    )
