"""Settings of generated pipelines: the table `[tool.bakehouse.ci]`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import unquote, urlsplit

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from bakehouse.catalog.registry_settings import KMS_KEY, ROLE
from bakehouse.catalog.secrets import secret_in
from bakehouse.errors import Diagnostic, Reason
from bakehouse.util import git
from bakehouse.util.toml_table import TomlTable, key_location

_LINE = r"[^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]+"
"""One line, also for parsers of YAML 1.1; without control characters, which YAML does not contain."""
CI_SYSTEMS = ("github", "gitlab", "codebuild")
EXPRESSIONS = {"github": "${{", "gitlab": "$[["}
"""The start of expressions that CI systems evaluate before a shell or YAML reads the quotes."""
_KEYS = (
    *("images", "requirement", "test", "shards", "runner", "branch", "repository", "role", "create"),
    *("signing_key", "code_scanning", "gpu", "secrets", "variables"),
)
JOBS = ("pull-request-check", "pull-request-build", "plan", "build", "gpu", "promote", "upgrade")
"""The jobs that can get secrets and variables. Jobs that propose changes cannot."""
REQUIREMENT_HINT = (
    "use the URL of a wheel with `#sha256=…`, `git+https://HOST/REPOSITORY@COMMIT`, or `-r FILE` with hashes"
)
_FILE = re.compile(r"-r (?P<file>[\w./-]+)", re.ASCII)
_SHA256 = re.compile("sha256=[0-9a-f]{64}")
_VARIABLE = re.compile("[A-Z][A-Z0-9_]*")
_RESERVED = re.compile(
    r"(ACTIONS|AWS|CI|CODEBUILD|GH|GITHUB|GITLAB|RUNNER)(_.*)?|BAKEHOUSE_(PUSH_)?TOKEN|PATH|HOME"
    r"|BASE|BRANCH|SHARD|TARGET|((CPU|GPU|GPU_TESTED)_)?IMAGES"
    r"|Y|N|YES|NO|ON|OFF|TRUE|FALSE|NULL"
)
"""Variables of CI systems, of the machine and of the pipeline, and words that are not texts in YAML."""
_VARIABLE_HINT = (
    "use capital letters, digits and `_`; variables of the CI system and the pipeline are reserved"
)
_OUTPUT_HINT = "name an S3 location for scripts and results, such as `s3://our-bucket/smoke`"
_KEY_HINT = "use `awskms:///` and the ARN of a key"
_SAGEMAKER_KEYS = ("instance_count", "role", "output", "spot", "max_run")
_GPU_KEYS = ("images", "instance_type", *_SAGEMAKER_KEYS, "runner", "gpus")


@dataclass(frozen=True, slots=True)
class GpuSettings:
    """Smoke tests of candidates on GPUs: as jobs on SageMaker, or on a runner with GPUs."""

    images: tuple[str, ...] = ()
    """Names or globs of the images to test; empty for all with checks that need GPUs."""
    instance_type: str = ""
    """Instance type of the jobs on SageMaker; empty for a runner."""
    instance_count: int = 1
    role: str = ""
    """ARN of the execution role of jobs; empty for `bakehouse-smoke-job` in the publishing role's account."""
    output: str = ""
    """S3 location for the scripts and results of jobs."""
    spot: bool = False
    max_run: int = 3600
    """Seconds until SageMaker stops a job."""
    runner: str = ""
    """Label of GitHub's runner or tag of GitLab's that has GPUs; empty for SageMaker."""
    gpus: int = 0
    """GPUs of the runner."""


@dataclass(frozen=True, slots=True)
class CiSettings:
    """Settings of `bake ci`."""

    images: tuple[str, ...] = ()
    """Names, families or globs of the images that pipelines build; empty for those of the project."""
    requirement: str = ""
    """The wheel, commit or requirements file, as pip's arguments, that provides `bake`; empty if unknown."""
    test: str = ""
    """A further command of the checks of a change."""
    shards: int = 4
    """Largest number of jobs that build images at the same time."""
    runner: str = ""
    """Label of GitHub's runners or tag of GitLab's; empty for the default."""
    branch: str = "main"
    """The branch that images are published from."""
    repository: str = ""
    """Path of the repository at GitHub or GitLab, such as `owner/name`, which may assume the role."""
    role: str = ""
    """ARN of the role that publishes images; empty for `bakehouse-publish` in the registry's account."""
    create: bool = False
    """Let the pipeline create missing repositories in Amazon ECR."""
    code_scanning: bool = False
    """Upload the findings of `lint` to GitHub's code scanning."""
    signing_key: str = ""
    """`awskms:///` and the ARN of a key with which jobs that build and test sign; empty for none."""
    gpu: GpuSettings | None = None
    """None leaves images for GPUs as candidates."""
    secrets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of the CI system's secrets that jobs get, by job."""
    variables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of the CI system's variables that jobs get, by job."""

    @property
    def requirements_file(self) -> str:
        """The file of `-r FILE`; empty for a wheel or a commit."""
        match = _FILE.fullmatch(self.requirement)
        return match["file"] if match else ""


def read_ci(settings: TomlTable) -> CiSettings:
    """Read the table `ci`."""
    table = settings.child("ci")
    table.check_keys(_KEYS)
    secrets, variables = _names(table, "secrets"), _names(table, "variables")
    for job, names in secrets.items():
        for name in (name for name in names if name in variables.get(job, ())):
            message = f"`{name}` is both a secret and a variable of the job `{job}`"
            table.problems.add(Diagnostic(message, key_location(table.path, job, f"{table.name}.variables")))
    return CiSettings(
        images=table.texts("images"),
        requirement=_requirement(table),
        test=_test(table),
        shards=table.number("shards", 4, range(1, 101), "a number of jobs, from 1 to 100"),
        runner=table.text("runner", pattern=r"[\w.-]+", hint="use the label of a runner"),
        branch=table.text("branch", "main", pattern=r"[\w./-]+", hint="use the name of a branch"),
        repository=table.text(
            "repository", pattern=r"[\w.-]+(/[\w.-]+)+", hint="use a path such as `owner/name`"
        ),
        role=table.text("role", pattern=ROLE, hint="such as `arn:aws:iam::123456789012:role/Publisher`"),
        create=table.flag("create"),
        code_scanning=table.flag("code_scanning"),
        signing_key=table.text("signing_key", pattern=KMS_KEY, hint=_KEY_HINT),
        gpu=_gpu(table.child("gpu")) if "gpu" in table.values else None,
        secrets=secrets,
        variables=variables,
    )


def _names(ci: TomlTable, key: str) -> dict[str, tuple[str, ...]]:
    """Read the names of secrets or variables, by job."""
    table = ci.child(key, "a table of jobs, each with a list of names")
    table.check_keys(JOBS)
    return {job: table.texts(job, _is_variable, _VARIABLE_HINT) for job in JOBS if job in table.values}


def _is_variable(name: str) -> bool:
    return bool(_VARIABLE.fullmatch(name)) and not _RESERVED.fullmatch(name)


def _gpu(table: TomlTable) -> GpuSettings:
    table.check_keys(_GPU_KEYS)
    settings = GpuSettings(
        images=table.texts("images"),
        instance_type=table.text(
            "instance_type", pattern=r"ml\.[a-z0-9-]+\.[a-z0-9-]+", hint="such as `ml.g6.12xlarge`"
        ),
        instance_count=table.number("instance_count", 1, range(1, 101), "a number of hosts, from 1 to 100"),
        role=table.text("role", pattern=ROLE, hint="such as `arn:aws:iam::123456789012:role/SageMakerRole`"),
        output=table.text("output", pattern=r"s3://[a-z0-9.-]+(/[\w.-]+)*", hint=_OUTPUT_HINT),
        spot=table.flag("spot"),
        max_run=table.number("max_run", 3600, range(60, 432_001), "a number of seconds, from 60 to 432000"),
        runner=table.text("runner", pattern=r"[\w.-]+", hint="use the label of a runner"),
        gpus=table.number("gpus", 0, range(1, 65), "a number of GPUs, from 1 to 64"),
    )
    if bool(settings.instance_type) == bool(settings.runner):
        hint = "set `instance_type` to test on SageMaker, or `runner` to the label of a runner with GPUs"
        table.report("gpu", f"[{table.name}] needs either `instance_type` or `runner`", hint)
        return settings
    for key in _SAGEMAKER_KEYS if settings.runner else ("gpus",):
        if key in table.values:
            other = "instance_type" if settings.runner else "runner"
            table.report(key, f"`{key}` in [{table.name}] needs `{other}`")
    if settings.runner and "gpus" not in table.values:
        hint = "set it to the number of GPUs of the runner"
        table.report("runner", f"`runner` in [{table.name}] needs `gpus`", hint)
    if settings.instance_type and "output" not in table.values:
        table.report("instance_type", f"`instance_type` in [{table.name}] needs `output`", _OUTPUT_HINT)
    return settings


def _test(table: TomlTable) -> str:
    text = table.text("test", pattern=_LINE, hint="use one line, such as `make test`")
    return "" if _has_expression(table, "test", text) else text


def _has_expression(table: TomlTable, key: str, text: str) -> bool:
    """Report an expression that a CI system would evaluate before the shell reads the quotes."""
    for system, start in (("GitHub", EXPRESSIONS["github"]), ("GitLab", EXPRESSIONS["gitlab"])):
        if start in text:
            message = f"`{key}` in [{table.name}] contains an expression of {system}: `{text}`"
            table.report(key, message, "use a variable of the shell, such as `$CI`")
            return True
    return False


def _requirement(table: TomlTable) -> str:
    """Return a requirement that identifies the files that pip installs."""
    text = table.text("requirement", pattern=_LINE, hint=REQUIREMENT_HINT)
    if not text:
        return ""
    location = key_location(table.path, "requirement", table.name)
    key = f"`requirement` in [{table.name}]"
    if kind := secret_in(text):
        message = f"{key} contains {kind}, which the pipeline would repeat"
        hint = "remove it, and pass PIP_EXTRA_INDEX_URL in [tool.bakehouse.ci.secrets]"
        table.problems.add(Diagnostic(message, replace(location, text=""), hint=hint))
        return ""
    if _has_expression(table, "requirement", text):
        return ""
    message, hint = f"{key} does not identify a file of Bakehouse: `{text}`", REQUIREMENT_HINT
    reasons: tuple[Reason, ...] = ()
    try:
        if not (problem := _requirement_problem(text)):
            return text
        reasons = (Reason(problem),)
    except ValueError as error:
        hint = str(error)
    table.problems.add(Diagnostic(message, location, reasons=reasons, hint=hint))
    return ""


def _requirement_problem(text: str) -> str:
    """Return the reason why pip could install another file at another time; empty if it cannot.

    Raises ValueError with a hint for an invalid URL of git.
    """
    if _FILE.fullmatch(text):
        return ""
    try:
        parts = urlsplit(text)
    except ValueError:
        return "the URL is invalid"
    if text.startswith(git.PREFIX):
        source = git.parse(text)
        if not source.url.startswith("https://"):
            return "jobs can read a repository by `git+https://` only"
        return (
            "" if source.is_commit else "a branch or a tag can move: only a commit has 40 hexadecimal digits"
        )
    if text.startswith("https://"):
        try:
            name = parse_wheel_filename(unquote(parts.path.rpartition("/")[2]))[0]
        except InvalidWheelFilename:
            return "the URL does not end with the name of a wheel"
        if "@" in parts.netloc:
            return "the URL contains a user, which the pipeline would repeat"
        if name != "bakehouse":
            return f"the wheel contains `{name}`"
        return (
            "" if _SHA256.fullmatch(parts.fragment) else "the URL does not end with `#sha256=` and a checksum"
        )
    return "Bakehouse is not on any package index; a package of that name is not from its authors"
