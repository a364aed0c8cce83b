"""Component of a base that the catalogue lacks, made from the versions that the image itself states."""

import json
import re
from collections.abc import Callable, Mapping

from packaging.version import InvalidVersion, Version

from bakehouse.catalog.names import FRAMEWORKS, framework_among
from bakehouse.engine.buildkit_events import Event
from bakehouse.errors import BakehouseError
from bakehouse.lock.base_step import build_settings, run_step
from bakehouse.plan.dockerfile import filled
from bakehouse.plan.workspace import Workspace
from bakehouse.util.terminal import Reporter

_DOCKERFILE = """\
FROM {{ base }} AS base
RUN --network=none mkdir -p /output && sh <<"END"
exec > /output/provides 2>/dev/null
[ -r /etc/os-release ] && . /etc/os-release && echo "$ID $VERSION_ID"
ldd --version 2>&1 | sed -n '1s/.* \\([0-9][0-9.]*\\)$/glibc \\1/p'
echo "cuda $CUDA_VERSION"
echo "nccl $NCCL_VERSION" | sed 's/-.*//'
/usr/local/cuda/bin/nvcc --version | sed -n 's/.*release \\([0-9.]*\\),.*/nvcc \\1/p'
sed -n 's/.*EFA installer version: *\\([0-9.]*\\).*/efa \\1/p' /opt/amazon/efa_installed_packages
mpirun --version | sed -n '1s/.* \\([0-9.]*\\)$/open-mpi \\1/p'
python3 - <<"PY"
import sys
from importlib.metadata import distributions
print("python %d.%d" % sys.version_info[:2])
for each in distributions():
    print("pip:" + str(each.metadata["Name"]).lower().replace("_", "-"), each.version)
PY
true
END

FROM scratch
COPY --from=base /output/ /
"""
_SYSTEMS = {"ubuntu": "ubuntu", "debian": "debian", "amzn": "amazon-linux"}
_PACKAGES = {"pip:sagemaker-training": "sagemaker-training"} | {
    f"pip:{package}": component
    for name, known in FRAMEWORKS.items()
    for package, component in ((known.package, name), (known.toolkit, known.toolkit))
}
_NAMES = ("glibc", "python", "cuda", "nvcc", "nccl", "efa", "open-mpi")


def ask_image(
    workspace: Workspace, reference: str, report: Reporter, on_event: Callable[[Event], None]
) -> dict[str, str]:
    """Return the names and versions that an image provides. Raises BakehouseError without engine or login."""
    report(f"asking {reference} what it contains")
    with build_settings(workspace, [reference], report, on_event) as settings:
        texts = run_step(reference, filled(_DOCKERFILE, base=reference), settings)
    return read_provides(texts.get("provides", ""))


def read_provides(text: str) -> dict[str, str]:
    """Return names of the catalogue with versions, from the lines that the image wrote."""
    names = {**{name: name for name in _NAMES}, **_SYSTEMS, **_PACKAGES}
    provides: dict[str, str] = {}
    for line in text.splitlines():
        key, _, version = line.partition(" ")
        public = version.strip().partition("+")[0]
        if key in names and _is_version(public):
            provides.setdefault(names[key], public)
    return provides


def component_name(reference: str) -> str:
    """Return a name for the component of an image."""
    repository = reference.partition("@")[0].rpartition("/")[2].partition(":")[0]
    return "-".join(("own", re.sub(r"[^a-z0-9]+", "-", repository.lower()).strip("-") or "base"))


def component_text(reference: str, provides: Mapping[str, str]) -> str:
    """Return the component of a base; without `provides`, comments name the values to fill in."""
    image, _, digest = reference.partition("@")
    tag = image.rpartition(":")[2] if ":" in image.rpartition("/")[2] else ""
    match = re.match(r"\d+(\.\d+)*", tag)
    version = match[0] if match and _is_version(match[0]) else "1"
    lines = [
        f"summary: {json.dumps(f'The image {image}')}",
        "stage_order: 0",
        'upstream: {none: "described by `bake init --base`"}',
    ]
    if "cuda" in provides:
        lines.append("gpu: true")
    if framework := framework_among(provides):
        lines.append(f"frozen: {FRAMEWORKS[framework].frozen}")
    lines += [
        "releases:",
        f'  - version: "{version}"',
        f"    base: {{image: {json.dumps(image)}, digest: {digest or 'unknown'}}}",
    ]
    pairs = ", ".join(f"{name}: {json.dumps(text)}" for name, text in provides.items())
    if pairs:
        lines.append(f"    provides: {{{pairs}}}")
    else:
        lines.append("    # Fill in the versions of the image, and remove names that it does not contain.")
        lines.append(
            '    # provides: {ubuntu: "", glibc: "", python: "", cuda: "", pytorch: "", nccl: "", efa: ""}'
        )
    return "\n".join(lines) + "\n"


def describe(
    workspace: Workspace, reference: str, report: Reporter, on_event: Callable[[Event], None]
) -> tuple[str, str]:
    """Return the component of an image, and a line about its content."""
    try:
        provides = ask_image(workspace, reference, report, on_event)
    except BakehouseError as error:
        reason = error.diagnostics[0].message
        return component_text(
            reference, {}
        ), f"the content of {reference} is not known: {reason}; fill in `provides`"
    content = ", ".join(f"{name} {version}" for name, version in provides.items())
    if not content:
        return component_text(reference, {}), f"{reference} states no versions; fill in `provides`"
    return component_text(reference, provides), f"{reference} contains {content}"


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True
