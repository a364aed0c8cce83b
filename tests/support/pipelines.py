"""Executors of generated pipelines: they run every command of a file verbatim, in its order and conditions.

They are stubs of GitHub, GitLab and CodeBuild: a clean clone for each job, the variables that commands read,
and stubs of the actions that workflows use. The commands themselves run for real.
"""

import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from bakehouse.catalog.project import HOME
from tests.support.wheels import sha256, wheel

ACTIONS = json.loads((HOME / "templates/ci/actions.json").read_text())["actions"]
_RECORDED = 'echo "${0##*/} $@" >> "$STUB_LOG"\n'
_AWS = f"""\
# `aws s3 cp` copies to and from a directory.
if [ "$1" = s3 ]; then
    case "$3" in
        -) mkdir -p "$(dirname "$STUB_S3/${{4#s3://}}")"; cat > "$STUB_S3/${{4#s3://}}" ;;
        *) cp -R "$STUB_S3/${{5#s3://}}." "$6" ;;
    esac
    exit
fi
{_RECORDED}"""
_INHERITED = ("PATH", "HOME", "LANG", "TMPDIR", "NO_COLOR")


class CommandError(AssertionError):
    """A command of a pipeline failed."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class Job:
    """A job that ran: its commands in order, and what they printed."""

    name: str
    commands: list[str] = field(default_factory=list)
    output: str = ""
    failed: bool = False


@dataclass
class Machines:
    """Machines of a CI system: each job has a new clone of the bare repository at `origin`."""

    origin: Path
    directory: Path
    environment: Mapping[str, str]
    jobs: list[Job] = field(default_factory=list)

    def job(self, name: str) -> Job:
        """Return a job that ran."""
        return next(job for job in self.jobs if job.name == name)

    @property
    def commands(self) -> list[str]:
        return [command for job in self.jobs for command in job.commands]

    def clone(self, commit: str, depth: int) -> Path:
        path = self.directory / f"clone-{len(list(self.directory.glob('clone-*')))}"
        origin = f"file://{self.origin}"
        fetch = ["fetch", "--quiet", *(["--depth", str(depth)] if depth else []), origin]
        refs = [] if depth else ["+refs/heads/*:refs/remotes/origin/*"]
        for words in (
            ["init", "--quiet", str(path)],
            ["-C", str(path), "remote", "add", "origin", origin],
            ["-C", str(path), *fetch, commit, *refs],
            ["-C", str(path), "checkout", "--quiet", "--detach", commit],
        ):
            subprocess.run(["git", *words], check=True, capture_output=True)
        return path

    def bash(self, job: Job, script: str, cwd: Path, environment: Mapping[str, str]) -> None:
        """Run a script as CI systems do; raise CommandError if it fails."""
        file = cwd.parent / f"{cwd.name}.sh"
        file.write_text(script)
        result = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(file)],
            cwd=cwd,
            env={**self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        job.output += result.stdout
        if result.returncode:
            job.failed = True
            message = f"{job.name} ended with {result.returncode}:\n{script}\n{result.stdout[-3000:]}"
            raise CommandError(message, result.returncode)


def requirements_file(project: Path) -> str:
    """Add a wheel to a project, and return a requirements file that pins it.

    The wheel is a stub of Bakehouse, whose `bake` runs this checkout.
    """
    entry_points = "[console_scripts]\nbake = bakehouse.__main__:main\n"
    files = {"bakehouse-1.0.dist-info/entry_points.txt": entry_points}
    path = wheel(project / "wheels", "bakehouse", "1.0", files=files)
    return f"./wheels/{path.name} --hash=sha256:{sha256(path)}\n"


def stub_programs(directory: Path, requirement: str = "", bake: str = "") -> dict[str, str]:
    """Return an environment in which Bakehouse can be installed without an index.

    With the text of a script as `bake`, a stub of Python installs that for a requirement, within
    milliseconds. `gh`, `aws` and `docker` of such a stub record how they are called. `$STUB_PULL_REQUEST` is
    the number of an open pull request.
    """
    programs = directory / "programs"
    programs.mkdir(parents=True)
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    site = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    make = f"""\
# A virtual environment with the packages of this one: installing pip takes seconds.
{sys.executable} "$1" "$2" --without-pip "$3" || exit
echo {shlex.quote(packages)} > "$3/{site}/tests.pth"
"""
    if bake:
        make = f"""\
[ "$1 $2" = "-m venv" ] || exit
mkdir -p "$3/bin"
printf '#!/bin/sh\\n[ "$*" = "-m pip install --quiet {requirement}" ] || exit\\n' > "$3/bin/python"
printf 'cp {programs}/stub-bake "${{0%%/*}}/bake"\\n' >> "$3/bin/python"
chmod +x "$3/bin/python"
"""
    scripts = {
        "python3": make,
        "gh": f"""\
echo "$@" >> {shlex.quote(str(directory / "gh.log"))}
if [ "$1 $2" = "pr list" ]; then echo "$STUB_PULL_REQUEST"; fi
""",
        "stub-bake": bake,
        **({"aws": _AWS, "docker": _RECORDED} if bake else {}),
    }
    for program, text in scripts.items():
        (programs / program).write_text(f"#!/bin/sh\n{text}")
        (programs / program).chmod(0o755)
    return {
        **{name: os.environ[name] for name in _INHERITED if name in os.environ},
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(HOME),
        "STUB_S3": str(directory / "s3"),
        "PIP_NO_INDEX": "1",
        "PIP_IGNORE_INSTALLED": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "BAKEHOUSE_KEEP_REGISTRY": "0",
        "GIT_CONFIG_GLOBAL": os.devnull,
    }


def bare_origin(project: Path, origin: Path) -> None:
    """Make a bare repository of a project, from which commits can be fetched by hash."""
    subprocess.run(["git", "clone", "--quiet", "--bare", str(project), str(origin)], check=True)
    for key in ("uploadpack.allowAnySHA1InWant", "uploadpack.allowFilter"):
        subprocess.run(["git", "-C", str(origin), "config", key, "true"], check=True)


# GitHub


@dataclass
class GitHub:
    """Runs a workflow as GitHub would for an event."""

    machines: Machines
    event_name: str
    commit: str
    ref: str = "refs/heads/main"
    base: str = ""
    repository: str = "example/tiny"
    fork: str = ""
    """Repository that a pull request comes from, if it is another."""
    aws: Any = None
    """Function that gives credentials for a role and a token's subject."""
    summary: str = ""
    artifacts: Path = Path()
    secrets: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    results: dict[str, dict[str, str]] = field(default_factory=dict)
    """Outputs of the jobs that succeeded."""
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)
    """Outputs of all jobs that ran."""
    environments: dict[str, dict[str, str]] = field(default_factory=dict)
    """Variables of the commands of each job."""
    failures: dict[str, CommandError] = field(default_factory=dict)

    def run(self, file: Path) -> None:
        workflow = yaml.safe_load(file.read_text())
        assert self.event_name in workflow[True]
        assert workflow["permissions"] == {}
        assert workflow["defaults"] == {"run": {"shell": "bash"}}
        self.artifacts = self.machines.directory / "artifacts"
        for name, job in workflow["jobs"].items():
            needs = job.get("needs", [])
            needs = [needs] if isinstance(needs, str) else needs
            context = self._context(workflow, needs)
            is_blocked = any(each not in self.results for each in needs)
            if not self._is_true(job.get("if", "true"), context, failed=is_blocked):
                continue
            rows = (
                [
                    dict(zip(job["strategy"]["matrix"], [value], strict=True))
                    for values in job["strategy"]["matrix"].values()
                    for value in values
                ]
                if "strategy" in job
                else [{}]
            )
            for index, row in enumerate(rows):
                try:
                    self._run_job(
                        name, job, workflow, {**context, "matrix": row, "strategy": {"job-index": index}}
                    )
                except CommandError as error:
                    self.failures.setdefault(name, error)
            if name in self.failures:
                self.results.pop(name, None)
        for failure in self.failures.values():
            raise failure

    def _context(self, workflow: Mapping[str, Any], needed: Sequence[str]) -> dict[str, Any]:
        pull = {"base": {"sha": self.base}, "head": {"repo": {"full_name": self.fork or self.repository}}}
        github = {
            "event_name": self.event_name,
            "event": {"pull_request": pull},
            "ref": self.ref,
            "repository": self.repository,
            "workflow": workflow["name"],
            "token": "the-token",
        }
        states = {**dict.fromkeys(self.failures, "failure"), **dict.fromkeys(self.results, "success")}
        needs = {
            name: {"outputs": self.outputs.get(name, {}), "result": states.get(name, "skipped")}
            for name in needed
        }
        # The secrets of a repository that sends them to forks.
        secrets, variables = dict(self.secrets), dict(self.variables)
        return {"github": github, "needs": needs, "steps": {}, "secrets": secrets, "vars": variables}

    def _run_job(
        self, name: str, job: Mapping[str, Any], workflow: Mapping[str, Any], context: dict[str, Any]
    ) -> None:
        title = self._insert(str(job["name"]), context)
        ran = Job(title)
        self.machines.jobs.append(ran)
        number = len(self.machines.jobs)
        temporary = self.machines.directory / f"runner-{number}"
        temporary.mkdir()
        context["runner"] = {"temp": str(temporary)}
        files = {key: temporary / key.lower() for key in ("GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT")}
        files["GITHUB_STEP_SUMMARY"] = temporary / "summary"
        for file in files.values():
            file.touch()
        environment = {
            "GITHUB_ACTIONS": "true",
            "GITHUB_REPOSITORY": self.repository,
            "RUNNER_TEMP": str(temporary),
            **{key: str(file) for key, file in files.items()},
        }
        for level in (workflow, job):
            environment |= {key: self._insert(value, context) for key, value in level.get("env", {}).items()}
        self.environments[name] = environment
        workspace: Path | None = None
        failure: CommandError | None = None
        for step in job["steps"]:
            if not self._is_true(step.get("if", "success()"), context, failed=failure is not None):
                continue
            values = {key: self._insert(value, context) for key, value in step.get("env", {}).items()}
            if "uses" in step:
                given = {
                    key: self._insert(str(value), context) for key, value in step.get("with", {}).items()
                }
                workspace = self._use(step["uses"], given, workspace, job, environment)
                continue
            assert workspace
            ran.commands.append(step["run"])
            try:
                self.machines.bash(ran, self._verbatim(step["run"]), workspace, {**environment, **values})
            except CommandError as error:
                failure = failure or error
            path = ":".join([*files["GITHUB_PATH"].read_text().split(), self.machines.environment["PATH"]])
            environment["PATH"] = path
            environment |= dict(line.split("=", 1) for line in files["GITHUB_ENV"].read_text().splitlines())
            if "id" in step:
                lines = files["GITHUB_OUTPUT"].read_text().splitlines()
                context["steps"][step["id"]] = {"outputs": dict(line.split("=", 1) for line in lines)}
        self.summary += files["GITHUB_STEP_SUMMARY"].read_text()
        self.outputs[name] = {
            key: self._insert(value, context) for key, value in job.get("outputs", {}).items()
        }
        if failure:
            raise failure
        self.results[name] = self.outputs[name]

    @staticmethod
    def _verbatim(script: str) -> str:
        # An expression in a script would be an injection.
        assert "${{" not in script
        return script

    def _use(
        self, action: str, given: Mapping[str, str], workspace: Path | None, job: Mapping[str, Any],
        environment: dict[str, str],
    ) -> Path | None:  # fmt: skip
        """Do what an action does, as far as the commands notice it."""
        name, _, commit = action.partition("@")
        assert ACTIONS[name]["commit"] == commit
        permissions = job["permissions"]
        if name == "actions/checkout":
            assert permissions["contents"] in ("read", "write")
            assert given["persist-credentials"] == "False"
            return self.machines.clone(self.commit, int(given["fetch-depth"]))
        assert workspace
        if name == "aws-actions/configure-aws-credentials":
            # A fork gets no token.
            assert permissions["id-token"] == "write"
            assert not self.fork
            environment |= self.aws(given["role-to-assume"], self._subject(job), given["aws-region"])
        elif name == "github/codeql-action/upload-sarif":
            # It reads the run, which a private repository only shows with this permission.
            assert (permissions["actions"], permissions["security-events"]) == ("read", "write")
            assert json.loads((workspace / given["sarif_file"]).read_text())["version"] == "2.1.0"
        elif name == "actions/upload-artifact":
            pattern = given["path"]
            if Path(pattern).is_absolute():
                if not Path(pattern).exists():
                    assert given["if-no-files-found"] == "ignore"
                    return workspace
                shutil.copytree(pattern, self.artifacts / given["name"], dirs_exist_ok=True)
                return workspace
            for path in _matching(workspace, pattern):
                target = self.artifacts / given["name"] / ("" if pattern.endswith("/") else Path(path).name)
                source = workspace / path
                if source.is_dir():
                    shutil.copytree(source, target, dirs_exist_ok=True)
                else:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(source, target)
        else:
            assert name == "actions/download-artifact"
            if "name" in given:
                shutil.copytree(self.artifacts / given["name"], workspace / given["path"])
                return workspace
            assert given["merge-multiple"] == "True"
            for directory in self.artifacts.iterdir():
                if fnmatch.fnmatch(directory.name, given["pattern"]):
                    shutil.copytree(directory, workspace / given["path"], dirs_exist_ok=True)
        return workspace

    def _subject(self, job: Mapping[str, Any]) -> str:
        """Return the subject of the job's OIDC token."""
        if environment := job.get("environment"):
            return f"repo:{self.repository}:environment:{environment}"
        rest = "pull_request" if self.event_name == "pull_request" else f"ref:{self.ref}"
        return f"repo:{self.repository}:{rest}"

    def _insert(self, text: str, context: Mapping[str, Any]) -> str:
        return re.sub(r"\$\{\{ (.+?) \}\}", lambda match: str(_value(match[1], context)), str(text))

    def _is_true(self, text: str, context: Mapping[str, Any], *, failed: bool) -> bool:
        expression = re.fullmatch(r"\$\{\{ (.+) \}\}", text)
        condition = expression[1] if expression else text
        if "cancelled()" not in condition and failed:
            return False
        return bool(_value(condition, context))


def _value(expression: str, context: Mapping[str, Any]) -> Any:
    """Evaluate one of the few forms of expressions that workflows contain."""
    for operator, ends in (("||", bool), ("&&", lambda value: not value)):
        if operator in expression:
            values = [_value(part.strip(), context) for part in expression.split(operator)]
            return next(filter(ends, values), values[-1])
    if match := re.fullmatch(r"(.+) (==|!=) (.+)", expression):
        return (_value(match[1], context) == _value(match[3], context)) == (match[2] == "==")
    known = {"success()": True, "true": True, "!cancelled()": True}
    if expression in known:
        return known[expression]
    if expression.startswith("'"):
        return expression.strip("'")
    value: Any = context
    for name in expression.split("."):
        # Of what is missing, GitHub makes an empty text.
        value = value.get(name, "") if value else ""
    return value


# GitLab


@dataclass
class GitLab:
    """Runs a pipeline as GitLab would for predefined variables."""

    machines: Machines
    commit: str
    variables: Mapping[str, str]
    aws: Any = None
    project: str = "example/tiny"
    scoped: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Variables of the project that only the jobs of an environment get."""
    artifacts: Path = Path()
    failures: dict[str, CommandError] = field(default_factory=dict)
    warnings: dict[str, CommandError] = field(default_factory=dict)
    """Failures that the pipeline allows."""
    environments: dict[str, dict[str, str]] = field(default_factory=dict)
    """Variables of the commands of each job."""

    def run(self, file: str, inherited: Mapping[str, str] | None = None) -> None:
        """Run a file of the repository, and the child pipelines that it triggers."""
        self._run(file, inherited)
        for failure in self.failures.values():
            raise failure

    def _run(self, file: str, inherited: Mapping[str, str] | None) -> None:
        shown = subprocess.run(
            ["git", "-C", str(self.machines.origin), "show", f"{self.commit}:{file}"],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        document = yaml.safe_load(shown)
        self.artifacts = self.machines.directory / "artifacts"
        stages = document.pop("stages", ["test"])
        jobs = {
            name: {**document.get(job.get("extends", ""), {}), **job}
            for name, job in document.items()
            if not name.startswith(".")
        }
        for name, job in sorted(jobs.items(), key=lambda item: stages.index(item[1].get("stage", "test"))):
            variables = {**self.variables, **(inherited or {})}
            rules = job.get("rules", [])
            matching = [rule for rule in rules if self._matches(rule["if"], variables)]
            if rules and not matching:
                continue
            when = (matching[0] if rules else job).get("when")
            own = {key: _expand(value, variables) for key, value in job.get("variables", {}).items()}
            if trigger := job.get("trigger"):
                assert trigger["strategy"] == "depend"
                for included in trigger["include"]:
                    self._run(included["local"], own)
                continue
            # Without `needs`, a job waits for all of the stages before.
            stage = stages.index(job.get("stage", "test"))
            before = [each for each in jobs if stages.index(jobs[each].get("stage", "test")) < stage]
            needs = job.get("needs", before)
            assert set(needs) <= jobs.keys()
            if when != "always" and any(each in self.failures for each in needs):
                continue
            matrix = job.get("parallel", {}).get("matrix", [{}])
            for row in matrix:
                for value in next(iter(row.values()), [""]):
                    try:
                        self._run_job(name, job, needs, {**variables, **own, **dict.fromkeys(row, value)})
                    except CommandError as error:
                        allowed = error.code in job.get("allow_failure", {}).get("exit_codes", ())
                        (self.warnings if allowed else self.failures).setdefault(name, error)

    def _run_job(
        self, name: str, job: Mapping[str, Any], needs: Sequence[str], variables: Mapping[str, str]
    ) -> None:
        ran = Job(name)
        self.machines.jobs.append(ran)
        if variables.get("GIT_STRATEGY") == "none":
            workspace = self.machines.directory / f"empty-{len(self.machines.jobs)}"
            workspace.mkdir()
        else:
            workspace = self.machines.clone(self.commit, int(variables.get("GIT_DEPTH", "20")))
        for needed in needs:
            if (self.artifacts / needed).exists():
                shutil.copytree(self.artifacts / needed, workspace, dirs_exist_ok=True)
        target = job.get("environment", "")
        scope = target if isinstance(target, str) else target["name"]
        environment = {**variables, **self.scoped.get(scope, {}), "CI_PROJECT_DIR": str(workspace)}
        self.environments[name] = environment
        for token, settings in job.get("id_tokens", {}).items():
            assert settings == {"aud": "sts.amazonaws.com"}
            subject = f"project_path:{self.project}:ref_type:branch:ref:{variables['CI_COMMIT_BRANCH']}"
            # The project's setting for the subject of tokens includes the environment
            subject += f":environment:{scope}" if scope else ""
            environment[token] = self.aws(variables["AWS_ROLE_ARN"], subject)
        lines = [*job.get("before_script", ()), *job["script"]]
        ran.commands += lines
        try:
            self.machines.bash(ran, "\n".join(lines), workspace, environment)
        finally:
            for pattern in job.get("artifacts", {}).get("paths", ()):
                for path in _matching(workspace, pattern):
                    shutil.copytree(workspace / path, self.artifacts / name / path, dirs_exist_ok=True)

    @staticmethod
    def _matches(condition: str, variables: Mapping[str, str]) -> bool:
        """Evaluate a rule of comparisons, joined by `&&`."""

        def holds(part: str) -> bool:
            name, _, value = part.partition(" == ")
            found = variables.get(name.removeprefix("$"), "")
            return found == value.strip('"') if value else bool(found)

        return all(holds(part.strip()) for part in condition.split("&&"))


def _expand(text: str, variables: Mapping[str, str]) -> str:
    return re.sub(r"\$(\w+)", lambda match: variables.get(match[1], ""), text)


# CodeBuild


@dataclass
class CodeBuild:
    """Runs a batch as CodeBuild would."""

    machines: Machines
    commit: str
    variables: Mapping[str, str] = field(default_factory=dict)
    reports: list[str] = field(default_factory=list)
    """Names of the test reports that builds wrote."""

    def run(self, file: Path) -> None:
        batch = yaml.safe_load(file.read_text())
        done: list[str] = []
        root = file.parents[1]
        for build in batch["batch"]["build-graph"]:
            # The file lists builds after those that they depend on.
            assert set(build.get("depend-on", ())) <= set(done)
            spec = yaml.safe_load((root / build["buildspec"]).read_text()) if "buildspec" in build else batch
            own = {key: str(value) for key, value in build.get("env", {}).get("variables", {}).items()}
            self._run_build(build["identifier"], spec, own)
            done.append(build["identifier"])

    def run_build(self, file: Path) -> None:
        """Run a file that is not a batch."""
        self._run_build(file.stem, yaml.safe_load(file.read_text()), {})

    def _run_build(self, name: str, spec: Mapping[str, Any], own: Mapping[str, str]) -> None:
        ran = Job(name)
        self.machines.jobs.append(ran)
        workspace = self.machines.clone(self.commit, 0)
        home = self.machines.directory / f"home-{len(self.machines.jobs)}"
        home.mkdir()
        assert spec["env"]["shell"] == "bash"
        of_system = {"HOME": str(home), "CODEBUILD_RESOLVED_SOURCE_VERSION": self.commit}
        environment = {**self.variables, **spec["env"].get("variables", {}), **own, **of_system}
        commands = [command for phase in spec["phases"].values() for command in phase["commands"]]
        ran.commands += commands
        # The commands share a shell, and one that fails ends the phase. `set -e` does not apply in them.
        script = "set +eo pipefail\n" + "".join(f"eval {shlex.quote(each)} || exit\n" for each in commands)
        cache = {"XDG_CACHE_HOME": str(Path.home() / ".cache")}
        self.machines.bash(ran, script, workspace, {**cache, **environment})
        for report, settings in spec.get("reports", {}).items():
            directory = workspace / settings["base-directory"]
            if any(list(directory.glob(pattern)) for pattern in settings["files"]):
                self.reports.append(report)


def assume(client: Any, trust: Mapping[str, Any], role: str, token: str, subject: str) -> dict[str, str]:
    """Return credentials of a role from STS, if its trust policy admits a token of that subject."""
    [statement] = trust["Statement"]
    conditions = statement["Condition"]
    allowed = [
        pattern
        for operator in ("StringEquals", "StringLike")
        for name, patterns in conditions.get(operator, {}).items()
        if name.endswith(":sub")
        for pattern in patterns
    ]
    assert any(fnmatch.fnmatchcase(subject, pattern) for pattern in allowed), (subject, allowed)
    answer = client.assume_role_with_web_identity(
        RoleArn=role, RoleSessionName="tests", WebIdentityToken=token
    )["Credentials"]
    return {
        "AWS_ACCESS_KEY_ID": answer["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": answer["SecretAccessKey"],
        "AWS_SESSION_TOKEN": answer["SessionToken"],
    }


def _matching(directory: Path, pattern: str) -> list[str]:
    """Return the relative paths that match a pattern."""
    return [str(path.relative_to(directory)) for path in directory.glob(pattern)]


def every_command(node: Any) -> Iterator[str]:
    """Yield every command in a pipeline file, to compare with those that ran."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "run" and isinstance(value, str):
                yield value
            elif key in ("script", "before_script", "commands"):
                yield from value
            else:
                yield from every_command(value)
    elif isinstance(node, Sequence) and not isinstance(node, str):
        for item in node:
            yield from every_command(item)
