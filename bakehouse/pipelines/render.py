"""Render the files of a pipeline, and compare them with the committed ones."""

import difflib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from bakehouse.catalog.project import HOME
from bakehouse.errors import Diagnostic, Location, StaleError
from bakehouse.pipelines import policies
from bakehouse.pipelines.pipeline import Pipeline
from bakehouse.util.files import is_file, write_whole
from bakehouse.util.terminal import Reporter

_TEMPLATES = HOME / "templates/pipelines"
_ACTIONS = _TEMPLATES / "actions.json"
"""Commits of GitHub actions, with the day on which they were read."""
_MOST_DIFF_LINES = 20


def render(system: str, pipeline: Pipeline) -> dict[str, str]:
    """Return the files of a pipeline for a CI system, by path relative to the project."""
    return dict(SYSTEMS[system](pipeline))


def write(files: Mapping[str, str], root: Path, report: Reporter) -> None:
    """Write the files that changed."""
    for name, text in files.items():
        path = root / name
        if not is_file(path) or path.read_text(encoding="utf-8") != text:
            write_whole(path, text)
            report(f"wrote {name}")


def check(system: str, files: Mapping[str, str], root: Path) -> None:
    """Raise StaleError, with diffs, if files are missing or differ from those rendered now."""
    problems = []
    for name, text in files.items():
        path = root / name
        old = path.read_text(encoding="utf-8") if is_file(path) else ""
        if old == text:
            continue
        lines = difflib.unified_diff(old.splitlines(), text.splitlines(), name, name, lineterm="", n=1)
        message = f"`{name}` is out of date" if old else f"`{name}` is missing"
        tail = tuple(lines)[:_MOST_DIFF_LINES] if old else ()
        hint = f"run `bake ci {system}`, then commit the files"
        problems.append(Diagnostic(message, Location(path, 1, 1), tail=tail, hint=hint))
    if problems:
        raise StaleError(*problems)


def _github(pipeline: Pipeline) -> Iterator[tuple[str, str]]:
    for name in ("pull-request", *_publishing_files(pipeline, "publish"), "upgrade"):
        yield f".github/workflows/bakehouse-{name}.yml", _text(f"github-{name}.yml.j2", pipeline)
    repository = f"repo:{pipeline.settings.repository}"
    branch = f"{repository}:ref:refs/heads/{pipeline.settings.branch}"
    subjects = {
        "publish": [branch, f"{repository}:environment:release"],
        "pull": [f"{repository}:pull_request"],
    }
    yield from _roles(pipeline, ".github/bakehouse", policies.GITHUB, subjects)


def _gitlab(pipeline: Pipeline) -> Iterator[tuple[str, str]]:
    for name in ("", "-images", *_publishing_files(pipeline, "-publish")):
        yield f".gitlab/bakehouse{name}.yml", _text(f"gitlab{name}.yml.j2", pipeline)
    branches = f"project_path:{pipeline.settings.repository}:ref_type:branch:ref:"
    subjects = {"publish": [branches + pipeline.settings.branch], "pull": [f"{branches}*"]}
    yield from _roles(pipeline, ".gitlab/bakehouse", policies.GITLAB, subjects)


def _codebuild(pipeline: Pipeline) -> Iterator[tuple[str, str]]:
    for name in ("pull-request", "build", *_publishing_files(pipeline, "publish", "release")):
        yield f".codebuild/bakehouse-{name}.yml", _text(f"codebuild-{name}.yml.j2", pipeline)
    if publishing := pipeline.publishing:
        roles = {
            "publish": policies.permissions(pipeline, publishing, logs=True),
            "pull": policies.pull_permissions(pipeline, publishing, logs=True),
        }
        for name, permissions in roles.items():
            yield f".codebuild/bakehouse/{name}-trust.json", _json(policies.codebuild_trust(publishing))
            yield f".codebuild/bakehouse/{name}-permissions.json", _json(permissions)


def _publishing_files(pipeline: Pipeline, *names: str) -> tuple[str, ...]:
    return names if pipeline.publishing else ()


def _roles(
    pipeline: Pipeline, directory: str, provider: str, subjects: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, str]]:
    """Yield the policies of each role, with the subjects whose tokens may assume it."""
    publishing = pipeline.publishing
    if publishing is None:
        return
    permissions = {"publish": policies.permissions(pipeline, publishing)}
    if pipeline.pull_role:
        permissions["pull"] = policies.pull_permissions(pipeline, publishing)
    for name, policy in permissions.items():
        yield f"{directory}/{name}-trust.json", _json(policies.trust(publishing, provider, subjects[name]))
        yield f"{directory}/{name}-permissions.json", _json(policy)


SYSTEMS: Mapping[str, Callable[[Pipeline], Iterator[tuple[str, str]]]] = {
    "github": _github,
    "gitlab": _gitlab,
    "codebuild": _codebuild,
}
"""The CI systems by the name that `bake ci` takes."""


def _json(policy: policies.Policy) -> str:
    return json.dumps(policy, indent=2) + "\n"


def _text(name: str, pipeline: Pipeline) -> str:
    """Render a template. Its delimiters are square brackets, because GitHub's expressions have braces."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        block_start_string="[%",
        block_end_string="%]",
        variable_start_string="[[",
        variable_end_string="]]",
        comment_start_string="[#",
        comment_end_string="#]",
    )
    return environment.get_template(name).render(
        pipeline=pipeline,
        publishing=pipeline.publishing,
        settings=pipeline.settings,
        bake=pipeline.bake,
        action=_action,
        audience=policies.AUDIENCE,
    )


def _action(name: str) -> str:
    """Return an action with its commit, and its version as a comment."""
    pin = json.loads(_ACTIONS.read_text(encoding="utf-8"))["actions"][name]
    return f"{name}@{pin['commit']} # {pin['version']}"
