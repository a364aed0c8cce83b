"""A pipeline of a project: the values that the templates of all CI systems insert."""

import json
import os.path
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from bakehouse.catalog import apt_lock, base_contents, pins
from bakehouse.catalog.ci_settings import REQUIREMENT_HINT, CiSettings, GpuSettings
from bakehouse.catalog.consent import VARIABLES
from bakehouse.catalog.instance_types import find_instance, instances
from bakehouse.catalog.project import HOME, IS_CHECKOUT, ProjectSettings
from bakehouse.catalog.requirements_file import read_requirements
from bakehouse.errors import Diagnostic, Problems, Reason, RecipeError, UsageError
from bakehouse.evidence import step_layers
from bakehouse.plan import image_keys
from bakehouse.plan.model import Image, RegistryBase
from bakehouse.plan.workspace import Workspace, is_own, own_recipes
from bakehouse.publish.tags import CANDIDATES
from bakehouse.registry.ecr_endpoints import partition_of, registry_host
from bakehouse.trust.keys import KMS
from bakehouse.util.files import is_file
from bakehouse.util.oci import ECR_HOST
from bakehouse.util.toml_table import key_location

ROLE = "bakehouse-publish"
"""Name of the role that promotes, unless the settings name one."""
BUILD_ROLE = "bakehouse-build"
"""Name of the role that builds, tests and pushes candidates."""
PULL_ROLE = "bakehouse-pull"
"""Name of the role with which pull requests pull base images."""
SMOKE_ROLE = "bakehouse-smoke"
"""Name of the role that tests candidates on GPUs."""
JOB_ROLE = "bakehouse-smoke-job"
"""Name of the execution role of smoke tests on SageMaker, unless the settings name one."""
_COMPONENT_FILES = ("component.yaml", "locks/**")
"""Files of a component that `lock` and `update` write."""
_IMAGE_FILES = ("Dockerfile", "docker-bake.json", "lock.json", "README.md", ".gitignore", "inputs/**")
"""Files of an image that `render` writes. Others, such as `releases.json`, are records of what happened."""


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
    host: str
    """Host of the registry in the first region."""
    prefix: str
    candidates: str
    """The registry and the prefix of candidates, as `--registry` takes them."""
    role: str
    """ARN of the role that promotes."""
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
    """ARN of the key of AWS KMS that signs releases; empty for none."""
    build_key: str
    """ARN of the key of AWS KMS with which jobs that build and test sign; empty for none."""

    @property
    def partition(self) -> str:
        return self.role.split(":")[1]

    @property
    def role_account(self) -> str:
        return self.role.split(":")[4]

    @property
    def reports(self) -> str:
        """Return the location of test reports that builds of CodeBuild hand over."""
        return f"s3://{self.bucket}/{self.ledger_prefix}reports"

    @property
    def build_role(self) -> str:
        return self.sibling(BUILD_ROLE)

    def sibling(self, name: str) -> str:
        """ARN of a role next to the one that publishes."""
        return f"{self.role.rpartition('/')[0]}/{name}"


@dataclass(frozen=True, slots=True)
class GpuTests:
    """Smoke tests of candidates on GPUs."""

    settings: GpuSettings
    images: tuple[str, ...]
    role: str
    """ARN of the role that starts the tests."""
    job_role: str
    """ARN of the execution role of jobs on SageMaker; empty for a runner."""

    @property
    def job_options(self) -> str:
        """Options of `bake smoke` that select the job on SageMaker."""
        settings = self.settings
        words = ["--on", "sagemaker", "--instance-type", settings.instance_type]
        words += ["--instance-count", str(settings.instance_count), "--role", self.job_role]
        job = {"max_run": settings.max_run, "output": settings.output}
        job |= {"spot": True} if settings.spot else {}
        # Without spaces, because a colon with a space ends a word of YAML.
        return shlex.join([*words, "--job", json.dumps(job, separators=(",", ":"))])


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The facts of a project that its pipelines contain."""

    settings: CiSettings
    images: tuple[str, ...]
    gpu_images: tuple[str, ...]
    """Images with checks that need GPUs."""
    bake: str
    """The command: `bake`, or `./bake` in the checkout of Bakehouse."""
    requirement: str
    """Arguments of `pip install`, quoted for a shell; empty if nothing needs to be installed."""
    publishing: Publishing | None
    """None if the registry of the project is not a table with an account of Amazon ECR."""
    vendors: tuple[VendorRepository, ...]
    gpu_tests: GpuTests | None
    """None leaves images for GPUs as candidates."""
    has_components: bool
    """The project has components of its own that `bake update` checks."""
    widening: Mapping[str, str]
    """Settings that widen trust, as values of variables, by key."""
    signs: bool
    """The project has a signing key."""
    proposed_files: tuple[str, ...]
    """Patterns of git for the files that `lock`, `update` and `render` write."""

    @property
    def consents(self) -> tuple[tuple[str, str], ...]:
        """The variables of all jobs for settings that need consent; only commands that sign get the key."""
        return tuple((VARIABLES[key], value) for key, value in self.widening.items() if key != "signing_key")

    def signing(self, promotes: bool) -> str:
        """Return the variable of a command that signs, as words of a shell, with a space at its end.

        Without a key of their own, commands that build and test sign nothing.
        """
        key = self.widening.get("signing_key", "") if promotes else self.settings.signing_key
        if not self.signs or (promotes and not key):
            return ""
        return f"{VARIABLES['signing_key']}={shlex.quote(key)} "

    def secrets(self, *jobs: str) -> tuple[str, ...]:
        """Return the names of the secrets that jobs get."""
        return tuple(sorted({name for job in jobs for name in self.settings.secrets.get(job, ())}))

    def environment(self, job: str) -> str:
        """Return the environment of the CI system that has the secrets of a job; empty without secrets."""
        return f"bakehouse-{job}" if self.secrets(job) else ""

    def variables(self, *jobs: str) -> tuple[str, ...]:
        """Return the names of the variables that jobs get, except those that are secrets of one of them."""
        names = {name for job in jobs for name in self.settings.variables.get(job, ())}
        return tuple(sorted(names - {*self.secrets(*jobs)}))

    @property
    def releasable(self) -> tuple[str, ...]:
        """Images that the pipeline can promote without a test on GPUs."""
        return tuple(name for name in self.images if name not in self.gpu_images)

    @property
    def shards(self) -> tuple[str, ...]:
        """The shards of builds, such as `1/2` and `2/2`."""
        return self._shards(self.images)

    @property
    def gpu_shards(self) -> tuple[str, ...]:
        """The shards of tests on GPUs."""
        return self._shards(self.gpu_tests.images if self.gpu_tests else ())

    def _shards(self, images: Sequence[str]) -> tuple[str, ...]:
        count = min(self.settings.shards, len(images))
        return tuple(f"{number}/{count}" for number in range(1, count + 1))

    @property
    def pull_role(self) -> str:
        """ARN of the role with which pull requests pull base images; empty if none is in Amazon ECR."""
        if not (self.vendors and self.publishing):
            return ""
        return self.publishing.sibling(PULL_ROLE)


def make_pipeline(workspace: Workspace, images: Sequence[Image]) -> Pipeline:
    """Return the pipeline of some images. Raises UsageError for missing settings."""
    project = workspace.project
    settings = project.ci or CiSettings()
    publishing = _publishing(project, settings)
    components = workspace.catalog.components.values()
    gpu_images = tuple(image.name for image in images if image.gpu)
    is_checkout = IS_CHECKOUT and project.root == HOME
    return Pipeline(
        settings=settings,
        images=tuple(image.name for image in images),
        gpu_images=gpu_images,
        bake="./bake" if is_checkout else "bake",
        requirement="" if is_checkout else _requirement(project, settings),
        publishing=publishing,
        vendors=tuple(sorted({base for image in images for base in _vendors(image)}, key=str)),
        gpu_tests=_gpu_tests(workspace, settings.gpu, publishing, gpu_images),
        has_components=any(
            component.has_upstream and is_own(workspace, component.location.path) for component in components
        ),
        widening=project.widening,
        signs=bool(project.key_address),
        proposed_files=tuple(dict.fromkeys(_proposed_files(workspace))),
    )


def _requirement(project: ProjectSettings, settings: CiSettings) -> str:
    """Return the arguments with which pip installs Bakehouse, quoted for a shell.

    Raises UsageError without the setting, and RecipeError for a requirements file without hashes.
    """
    table = "tool.bakehouse.ci"
    location = key_location(project.root / "pyproject.toml", "requirement", table)
    if not settings.requirement:
        message = f"[{table}] has no `requirement`, so jobs cannot install Bakehouse"
        reason = "Bakehouse is not on any package index; a package of that name is not from its authors"
        raise UsageError(message, location, reasons=(Reason(reason),), hint=REQUIREMENT_HINT)
    if not (file := settings.requirements_file):
        return shlex.join([settings.requirement])
    path = project.root / file
    if not is_file(path) or not path.resolve().is_relative_to(project.root.resolve()):
        raise RecipeError(
            f"`requirement` in [{table}] names `{file}`, which is not a file of the project", location
        )
    packages = read_requirements(path).packages
    problems = Problems()
    for package in packages:
        if not package.hashes:
            hint = "add `--hash=sha256:…` to each package; `uv pip compile --generate-hashes` writes them"
            problems.add(Diagnostic(f"`{package.name}` has no hash", package.location, hint=hint))
    if not any(package.name == "bakehouse" for package in packages):
        hint = "add a line such as `./wheels/bakehouse-1.0-py3-none-any.whl --hash=sha256:…`"
        problems.add(Diagnostic(f"`{file}` does not contain Bakehouse", location, hint=hint))
    problems.raise_as(RecipeError)
    return shlex.join(["--require-hashes", "-r", file])


def _proposed_files(workspace: Workspace) -> Iterator[str]:
    """Yield patterns of the project's files that `lock`, `update` and `render` write."""
    project = workspace.project
    roots = [root for root in project.recipe_roots if is_own(workspace, root)]
    for root in roots:
        for file in _COMPONENT_FILES:
            yield from _pattern(project, root / "components/*" / file)
    for root in roots[-1:]:
        for file in (pins.FILE, f"{apt_lock.DIRECTORY}/**", f"{base_contents.DIRECTORY}/**"):
            yield from _pattern(project, root / file)
    for recipe in own_recipes(workspace):
        if recipe.requirements:
            yield from _pattern(project, recipe.requirements.lock)
    layers = (step_layers.FILE,) if is_file(project.images / step_layers.FILE) else ()
    for file in ("README.md", *((image_keys.FILE,) if project.commit else ()), *layers):
        yield from _pattern(project, project.images / file)
    for file in _IMAGE_FILES:
        yield from _pattern(project, project.images / "*" / file)


def _pattern(project: ProjectSettings, path: Path) -> Iterator[str]:
    """Yield a path as a pattern relative to the project, if it is inside. `*` replaces unusual characters."""
    relative = os.path.relpath(path, project.root)
    if not relative.startswith(".."):
        yield re.sub(r"[^A-Za-z0-9_./*-]+", "*", relative)


def _gpu_tests(
    workspace: Workspace,
    settings: GpuSettings | None,
    publishing: Publishing | None,
    gpu_images: Sequence[str],
) -> GpuTests | None:
    """Return the tests on GPUs; None without the settings or a registry. Raises UsageError."""
    if settings is None or publishing is None:
        return None
    problems = Problems()
    patterns = settings.images or ("*",)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in gpu_images):
            message = f"`{pattern}` matches no image of the pipeline with checks that need GPUs"
            hint = "correct `images` in [tool.bakehouse.ci.gpu], or remove the table"
            problems.add(Diagnostic(message, hint=hint))
    problems.raise_as(UsageError)
    if settings.instance_type:
        find_instance(instances(workspace.catalog), settings.instance_type)
    return GpuTests(
        settings,
        tuple(name for name in gpu_images if any(fnmatchcase(name, pattern) for pattern in patterns)),
        publishing.sibling(SMOKE_ROLE),
        (settings.role or publishing.sibling(JOB_ROLE)) if settings.instance_type else "",
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


def _publishing(project: ProjectSettings, settings: CiSettings) -> Publishing | None:
    registry = project.registries.get(project.registry.partition("/")[0])
    if registry is None or not registry.account:
        return None
    if not project.ledger:
        raise UsageError(
            "a pipeline that publishes needs a ledger in S3, because its machines keep no files",
            hint='set `ledger` in [tool.bakehouse], such as `ledger = "s3://our-bucket/releases"`',
        )
    if not settings.repository:
        raise UsageError(
            "the repository that may publish images is unknown",
            hint='set `repository = "owner/name"` in [tool.bakehouse.ci]',
        )
    needed = {*(project.policy.require if project.policy else ())}
    if needed and project.key_address and not settings.signing_key:
        raise UsageError(
            "the policy requires statements of the build, and the jobs that build have no key",
            hint="set `signing_key` in [tool.bakehouse.ci], and add its public key to `keys` of the policy",
        )
    bucket, _, prefix = project.ledger.removeprefix("s3://").partition("/")
    partition = partition_of(registry.regions[0])
    name, _, own_prefix = project.registry.partition("/")
    image_prefix = own_prefix or registry.prefix or project.repository_prefix
    return Publishing(
        account=registry.account,
        regions=registry.regions,
        host=registry_host(
            registry.account, registry.regions[0], fips=registry.fips, dual_stack=registry.dual_stack
        ),
        prefix=image_prefix,
        candidates=f"{name}/{image_prefix}/{CANDIDATES}",
        role=settings.role or f"arn:{partition}:iam::{registry.account}:role/{ROLE}",
        bucket=bucket,
        ledger_prefix=f"{prefix.strip('/')}/" if prefix.strip("/") else "",
        create=settings.create,
        scan=bool(registry.scan),
        registry_role=registry.role,
        kms_key=project.key_address.removeprefix(KMS) if project.key_address.startswith(KMS) else "",
        build_key=settings.signing_key.removeprefix(KMS),
    )
