"""The page of an image, `images/<image>/README.md`, for people who run jobs with it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bakehouse.catalog.names import TITLES
from bakehouse.evidence.image_state import ImageState, Level
from bakehouse.evidence.known_checks import KnownChecks
from bakehouse.ledger.releases import ReleaseRecord
from bakehouse.plan.dockerfile import PAGE_BANNER
from bakehouse.plan.model import Image
from bakehouse.plan.unpinned import unpinned_inputs
from bakehouse.util.format import format_bytes, format_count, format_names

_RUN = {
    Level.BUILT: "built with the real packages",
    Level.REHEARSED: "rehearsed: all build steps ran, with stubs for",
}


@dataclass(frozen=True, slots=True)
class ImagePage:
    """Content of the page of an image."""

    image: Image
    state: ImageState
    release: ReleaseRecord | None
    """The current release in a registry that readers of the page can reach."""
    checks: KnownChecks


def page(content: ImagePage) -> str:
    """Return the page as Markdown."""
    image = content.image
    blocks = [
        f"{PAGE_BANNER}\n\n# {image.name}\n\n{' '.join(image.summary.split())}.",
        markdown_table(("", ""), _facts(content)),
        "## Use it\n\n" + _usage(image),
        "## Components\n\n" + markdown_table(("component", "version", "variant"), _components(image)),
        *_known_problems(image),
        "The first lines of the [Dockerfile](Dockerfile) say how to build the image.\n"
        "[lock.json](lock.json) lists the files that it is built from, by sha256.",
    ]
    return "\n\n".join(blocks) + "\n"


def _facts(content: ImagePage) -> list[tuple[str, ...]]:
    image = content.image
    versions = {name: version for part in image.all_parts for name, version in part.provides}
    versions |= {part.component: part.version for part in image.all_parts}
    facts: list[tuple[str, ...]] = []
    facts += [(title, versions[name]) for name, title in TITLES.items() if name in versions]
    facts.append(("Launchers", ", ".join(f"`{name}`" for name in image.launchers) or "none"))
    facts.append(("Runs on", _hosts(image)))
    facts.append(("Base image", f"`{image.base.reference}`"))
    if unpinned := unpinned_inputs(image):
        facts.append(("Not pinned", "; ".join(item.text for item in unpinned)))
    facts.append(("Publishable", image.known.publishable))
    facts.append(("Supported until", image.known.ends or "not known"))
    facts += _sizes(content)
    facts.append(("Tested", _tests(content)))
    release = content.release
    uri = f"`{release.image_uri}`, {release.date}" if release else "not released to a shared registry"
    facts.append(("`image_uri`", uri))
    return facts


def _hosts(image: Image) -> str:
    if image.neuron_architecture:
        return f"instances with NeuronCores of version {image.neuron_architecture}"
    if not image.gpu:
        return "CPU instances"
    architectures = f" with compute capability {image.gpu_architecture}" if image.gpu_architecture else ""
    return f"GPU instances{architectures}"


def _example_type(image: Image) -> str:
    if image.neuron_architecture:
        return "ml.trn1.32xlarge"
    return "ml.g5.12xlarge" if image.gpu else "ml.c5.4xlarge"


def _sizes(content: ImagePage) -> list[tuple[str, ...]]:
    sizes: list[tuple[str, ...]] = []
    if content.release and content.release.bytes:
        sizes.append(("Size", f"{format_bytes(content.release.bytes)} compressed, as released"))
    if needed := content.image.download_bytes:
        sizes.append(("Downloads to build it", format_bytes(needed)))
    return sizes


def _tests(content: ImagePage) -> str:
    state, release = content.state, content.release
    facts = []
    if state.level is not Level.RENDERED:
        facts.append(f"{_RUN[state.level]} {format_names(state.stubs)}".rstrip())
    if state.differ:
        facts.append("not reproducible: a step gave different layers")
    if summary := content.checks.summary:
        facts.append(f"smoke test: {summary}, since {content.checks.date[:10]}")
    if release:
        passed = sum(check.outcome == "passed" for check in release.checks)
        facts.append(f"the released image passed {format_count(passed, 'smoke check')}")
    return "; ".join(facts) or "no build is recorded"


def _usage(image: Image) -> str:
    source = "" if image.entry_point else " --source-dir src --entry-point train.py"
    return (
        "Run a training job in local containers that are set up like SageMaker hosts:\n\n"
        f"```console\n$ bake run {image.name}{source} --instance-count 2\n```\n\n"
        "Once it is released, print Python code that starts the job on SageMaker:\n\n"
        f"```console\n$ bake estimator {image.name} --instance-type {_example_type(image)}\n```\n\n"
        "In your own code:\n\n"
        "```python\nfrom bakehouse import image_uris\n\n"
        f'image_uri = image_uris.retrieve("{image.name}")\n```'
    )


def _known_problems(image: Image) -> list[str]:
    lines = [f"- {text} ([source]({source}))" for text, source in image.known.problems]
    return ["## Known problems\n\n" + "\n".join(lines)] if lines else []


def _components(image: Image) -> list[tuple[str, ...]]:
    return [(part.component, part.version, part.variant or "-") for part in image.all_parts]


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as Markdown, without the last newline."""
    lines = [heads, ("---",) * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
