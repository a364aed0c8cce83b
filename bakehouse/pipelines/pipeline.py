"""A pipeline of a project: the values that the templates of all CI systems insert."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from bakehouse import __version__
from bakehouse.catalog.ci_settings import CiSettings
from bakehouse.catalog.project import HOME, IS_CHECKOUT, Project
from bakehouse.errors import Diagnostic, UsageError
from bakehouse.plan.model import Image, RegistryBase
from bakehouse.registry.ecr_endpoints import partition_of
from bakehouse.trust.keys import KMS
from bakehouse.util.oci import ECR_HOST

ROLE = "bakehouse-publish"
"""Name of the role that publishes, unless the settings name one."""
PULL_ROLE = "bakehouse-pull"
"""Name of the role with which pull requests pull base images."""


@dataclass(frozen=True, slots=True)
class VendorRepository:
    """A repository of Amazon ECR with the base of an image."""

    region: str
    account: str
    name: str


@dataclass(frozen=True, slots=True)
class Publishing:
    """The destination of published images, and the role that a pipeline assumes for them."""

    account: str
    regions: tuple[str, ...]
    prefix: str
    role: str
    """ARN of the role."""
    bucket: str
    """Bucket of the ledger."""
    ledger_prefix: str
    """Prefix of the ledger in its bucket, with a slash at its end unless it is empty."""
    create: bool
    """Create missing repositories."""
    scan: bool
    """Wait for the scan of each image."""
    registry_role: str
    """ARN of a role that Bakehouse assumes for the registry; empty for none."""
    kms_key: str
    """ARN of the key of AWS KMS that signs images; empty for none."""

    @property
    def partition(self) -> str:
        return self.role.split(":")[1]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The facts of a project that its pipelines contain."""

    settings: CiSettings
    images: tuple[str, ...]
    gpu_images: tuple[str, ...]
    """Images with checks that need GPUs, which no job of the pipeline has."""
    bake: str
    """The command: `bake`, or `./bake` in the checkout of Bakehouse."""
    requirement: str
    """Arguments of `pip install`, quoted for a shell; empty if nothing needs to be installed."""
    publishing: Publishing | None
    """None if the registry of the project is not a table with an account of Amazon ECR."""
    vendors: tuple[VendorRepository, ...]

    @property
    def releasable(self) -> tuple[str, ...]:
        """Images that the pipeline can promote."""
        return tuple(name for name in self.images if name not in self.gpu_images)

    @property
    def shards(self) -> tuple[str, ...]:
        """The shards, such as `1/2` and `2/2`."""
        count = min(self.settings.shards, len(self.images))
        return tuple(f"{number}/{count}" for number in range(1, count + 1))

    @property
    def pull_role(self) -> str:
        """ARN of the role with which pull requests pull base images; empty if none is in Amazon ECR."""
        if not (self.vendors and self.publishing):
            return ""
        return f"{self.publishing.role.rpartition('/')[0]}/{PULL_ROLE}"


def make_pipeline(project: Project, images: Sequence[Image]) -> Pipeline:
    """Return the pipeline of some images. Raises UsageError for missing settings."""
    settings = project.ci or CiSettings()
    is_checkout = IS_CHECKOUT and project.root == HOME
    requirement = shlex.join(settings.requirement or (f"bakehouse=={__version__}",))
    return Pipeline(
        settings=settings,
        images=tuple(image.name for image in images),
        gpu_images=tuple(image.name for image in images if image.gpu),
        bake="./bake" if is_checkout else "bake",
        requirement="" if is_checkout else requirement,
        publishing=_publishing(project, settings),
        vendors=tuple(sorted({base for image in images for base in _vendors(image)}, key=str)),
    )


def _vendors(image: Image) -> list[VendorRepository]:
    """Return the repositories of Amazon ECR that a build of an image pulls from."""
    if not isinstance(image.base, RegistryBase):
        return []
    repositories = []
    for reference in filter(None, (image.base.reference, image.build_base)):
        host, _, rest = reference.partition("/")
        if match := ECR_HOST.fullmatch(host):
            name = rest.partition("@")[0].partition(":")[0]
            repositories.append(VendorRepository(match["region"], match["account"], name))
    return repositories


def _publishing(project: Project, settings: CiSettings) -> Publishing | None:
    registry = project.registries.get(project.registry.partition("/")[0])
    if registry is None or not registry.account:
        return None
    if not project.ledger:
        message = "a pipeline that publishes needs a ledger in S3, because its machines keep no files"
        hint = 'set `ledger` in [tool.bakehouse], such as `ledger = "s3://our-bucket/releases"`'
        raise UsageError(Diagnostic(message, hint=hint))
    if not settings.repository:
        message = "the repository that may publish images is unknown"
        hint = 'set `repository = "owner/name"` in [tool.bakehouse.ci]'
        raise UsageError(Diagnostic(message, hint=hint))
    bucket, _, prefix = project.ledger.removeprefix("s3://").partition("/")
    partition = partition_of(registry.regions[0])
    return Publishing(
        account=registry.account,
        regions=registry.regions,
        prefix=project.registry.partition("/")[2] or registry.prefix or project.repository_prefix,
        role=settings.role or f"arn:{partition}:iam::{registry.account}:role/{ROLE}",
        bucket=bucket,
        ledger_prefix=f"{prefix.strip('/')}/" if prefix.strip("/") else "",
        create=settings.create,
        scan=bool(registry.scan),
        registry_role=registry.role,
        kms_key=project.signing_key.removeprefix(KMS) if project.signing_key.startswith(KMS) else "",
    )
