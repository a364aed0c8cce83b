"""Settings of generated pipelines: the table `[tool.bakehouse.ci]`."""

import shlex
from dataclasses import dataclass

from bakehouse.catalog.registry_settings import ROLE
from bakehouse.util.toml_table import TomlTable

_LINE = r"[^\n\r]+"
_KEYS = (
    *("images", "requirement", "test", "shards", "runner", "branch", "repository", "role", "create"),
    "code_scanning",
)


@dataclass(frozen=True, slots=True)
class CiSettings:
    """Settings of `bake ci`."""

    images: tuple[str, ...] = ()
    """Names, families or globs of the images that pipelines build; empty for those of the project."""
    requirement: tuple[str, ...] = ()
    """Arguments of `pip install` that provide `bake`; empty for the running version of Bakehouse."""
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


def read_ci(settings: TomlTable) -> CiSettings:
    """Read the table `ci`."""
    table = settings.child("ci")
    table.check_keys(_KEYS)
    return CiSettings(
        images=table.texts("images"),
        requirement=_requirement(table),
        test=table.text("test", pattern=_LINE, hint="use one line, such as `make test`"),
        shards=table.number("shards", 4, range(1, 101), "a number of jobs, from 1 to 100"),
        runner=table.text("runner", pattern=r"[\w.-]+", hint="use the label of a runner"),
        branch=table.text("branch", "main", pattern=r"[\w./-]+", hint="use the name of a branch"),
        repository=table.text(
            "repository", pattern=r"[\w.-]+(/[\w.-]+)+", hint="use a path such as `owner/name`"
        ),
        role=table.text("role", pattern=ROLE, hint="such as `arn:aws:iam::123456789012:role/Publisher`"),
        create=table.flag("create"),
        code_scanning=table.flag("code_scanning"),
    )


def _requirement(table: TomlTable) -> tuple[str, ...]:
    """Return the words of the requirement, as a shell without variables would split it."""
    text = table.text("requirement", pattern=_LINE, hint="use one line, such as `bakehouse==1.0`")
    try:
        return tuple(shlex.split(text))
    except ValueError:
        table.report("requirement", f"`requirement` in [{table.name}] has an unclosed quote: `{text}`")
        return ()
