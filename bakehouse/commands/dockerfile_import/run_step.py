"""Translation of RUN: each command becomes packages, requirements, components, or a step of `run`."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as changed
from pathlib import Path, PurePosixPath

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from bakehouse.catalog.secrets import secret_in
from bakehouse.catalog.system_packages import APT_PACKAGE
from bakehouse.commands.dockerfile_import.account import Word
from bakehouse.commands.dockerfile_import.index import ComponentSource, ReverseIndex, version_in
from bakehouse.commands.dockerfile_import.proposal import (
    BUILD_VARIABLES,
    Proposal,
    Wish,
    place,
    replace,
    untranslate,
)
from bakehouse.commands.dockerfile_import.shell import (
    ASSIGNMENT,
    ShellCommand,
    ShellWord,
    expanded,
    has_variables,
    split_commands,
    unquoted,
)
from bakehouse.util.dockerfile_reader import Instruction
from bakehouse.util.files import is_file, read_text

_SHELLS = ("sh", "bash", "dash", "zsh")
_PREFIXES = ("sudo", "exec", "command", "time", "nice", "eatmydata")
_WITHOUT_EFFECT = ("set", "true", ":", "shopt", "ulimit", "umask")
_PYTHON = re.compile(r"python[\d.]*")
_PIP = re.compile(r"pip[\d.]*")
_CONDA = ("conda", "mamba", "micromamba")
_APT_VALUES = ("-t", "--target-release", "-o", "-c", "--option", "--config-file")
_APT_HARMLESS = re.compile(
    r"-[yqmf]+|-qq|--(?:yes|assume-yes|quiet|no-install-recommends|no-install-suggests|fix-missing|fix-broken"
    r"|allow-unauthenticated|allow-downgrades|allow-change-held-packages|force-yes|auto-remove|ignore-missing)"
)
_APT_UNNEEDED = ("update", "clean", "autoclean", "distclean")
_APT_REFUSED = {
    **dict.fromkeys(
        ("upgrade", "dist-upgrade", "full-upgrade"), "`bake lock` selects the versions; remove it"
    ),
    **dict.fromkeys(
        ("remove", "purge", "autoremove"),
        "a recipe does not remove packages; leave them, or choose another base",
    ),
}
_PYTHON_PACKAGE = re.compile(
    r"python(?P<version>3\.\d+)?(?:3|3?-is-python3|-is-python3)?"
    r"(?:-(?:dev|venv|pip|distutils|setuptools|wheel|minimal|full|all|lib2to3|gdbm|tk))*"
    r"|libpython3(?:\.\d+)?(?:-dev)?"
)
_PIP_INDEXES = ("-i", "--index-url", "--extra-index-url")
_OUTPUTS = ("-o", "-O", "--output", "--output-document", "-C", "-P", "--directory-prefix")
"""Options of downloads with the name of a file or a directory."""
_PIP_VALUES = (
    *("-r", "--requirement", "-e", "--editable"),
    *_PIP_INDEXES,
    *("-f", "--find-links", "--trusted-host", "--timeout", "--default-timeout", "--retries", "-c"),
    *("--constraint", "--cache-dir", "--root-user-action", "-t", "--target", "--prefix", "--root"),
    *("--progress-bar", "--platform", "--upgrade-strategy", "--proxy", "--log", "-p", "--python"),
    *("--global-option", "--config-settings", "--install-option", "--build-option", "--only-binary"),
    *("--no-binary", "--no-build-isolation-package", "-C", "--cert", "--exists-action", "--index"),
)
_PIP_HARMLESS = (
    *("-q", "-qq", "-qqq", "--quiet", "-v", "-vv", "-vvv", "--verbose", "-U", "--upgrade", "--no-cache-dir"),
    *("--no-cache", "--disable-pip-version-check", "--no-input", "--no-warn-script-location"),
    *("--break-system-packages", "--system", "--timeout", "--default-timeout", "--retries", "--cache-dir"),
    *(
        "--root-user-action",
        "--progress-bar",
        "--no-color",
        "--ignore-installed",
        "-I",
        "--user",
        "--compile",
    ),
    *("--no-compile", "--prefer-binary", "--force-reinstall", "--trusted-host", "-y"),
)
"""Options that do not change what a lock installs."""
_INSTALLERS = ("pip", "setuptools", "wheel", "uv", "virtualenv", "pipx")
_PLAIN = (
    *(
        "mkdir",
        "chmod",
        "chown",
        "ln",
        "echo",
        "printf",
        "touch",
        "sed",
        "rm",
        "cp",
        "mv",
        "ldconfig",
        "test",
    ),
    *(
        "install",
        "useradd",
        "groupadd",
        "usermod",
        "update-ca-certificates",
        "locale-gen",
        "tee",
        "[",
        "rmdir",
    ),
)
"""Commands that need no network, so a step of `run` may contain them."""
_NEEDS_SOURCE = ("cp", "mv", "chmod", "chown", "sed", "install", "ln")
_SYSTEM = re.compile(
    r"/(?:etc|usr(?!/local/.)|bin|sbin|lib|lib64|var|dev|proc|sys)(?:/|$)|/root(?:/\.\w+)?$|/tmp/?$|/opt/?$|/opt/ml(?:/|$)"
    r"|/usr/local/s?bin/?$|/$"
)
"""Paths of every base that contain files of its packages."""
_OF_COMPONENTS = re.compile(
    r"/opt/(?:amazon|openmpi|nccl|venv|conda|aws-ofi-nccl|gdrcopy)|/usr/local/cuda|/usr/lib/"
)
"""Directories that components or the base may need when the steps run."""
_SHELL_VARIABLES = ("HOME", "PATH", "PWD", "USER", "HOSTNAME", "LD_LIBRARY_PATH")
_BUILD_PROGRAMS = frozenset(
    {
        *("cd", "pushd", "popd", "mkdir", "rmdir", "tar", "gunzip", "gzip", "unzip", "bunzip2", "xz", "make"),
        *(
            "ninja",
            "cmake",
            "configure",
            "autogen.sh",
            "autoreconf",
            "meson",
            "b2",
            "bjam",
            "ldconfig",
            "git",
        ),
        *(
            "install",
            "strip",
            "sha256sum",
            "md5sum",
            "gcc",
            "g++",
            "export",
            "ls",
            "pwd",
            "test",
            "gpg",
            "dpkg",
        ),
        *("find", "nproc", "conda-build", "wget", "curl", "patchelf", "touch", "libtoolize", "rpm", "chmod"),
    }
)
"""Commands that belong to the build of a component from its source."""
_MOVES = ("rm", "cp", "mv", "ln")
_CACHES = re.compile(
    r"/var/lib/apt|/var/cache|/tmp\b|/var/tmp|/root/\.cache|~/\.cache|\$HOME/\.cache|/var/log"
)
_SSH = re.compile(r"/etc/ssh/|/\.ssh\b|/run/sshd|pam\.d/sshd|authorized_keys|sshd_config|ssh_config")
_UNSAFE = re.compile(r"[<>|&;]")
_SECRET = re.compile(r"token|passw|secret|api[-_]?key|credential", re.IGNORECASE)
_URL = re.compile(r"https?://|ftp://|git@|git\+|git://|ssh://")
_OTHER_INDEX = "set the index in pip's configuration, which `bake lock` reads"
_SCRIPT = "decide what it does: add the packages, or copy the script with `files` and call it in `run`"
_CONTENT_FILE = "write the content into a file of the project and copy it with `files`"
_SCRIPT_FILE = "copy the script with `files` and call it in `run`"
_QUOTE = "quote it: the shell reads it as a redirection"
_ONE_COMMAND = "a recipe sets no variables for one command; set it in `environment` if the image needs it"
_UNKNOWN = "add it to `run` if it needs no network, or write a component"
_DOWNLOAD = "downloads belong in a component, where they are pinned"
_BAKEHOUSE_APT = "Bakehouse installs distribution packages itself and keeps no lists"
_BAKEHOUSE_PIP = "Bakehouse installs locked packages with its own pip"
_UNPACKED = re.compile(r"\.(?:tar(?:\.\w+)?|tgz|tbz2?|txz|zip|sh|run|git)$")


@dataclass(slots=True)
class _Command:
    """A command of a RUN with its words."""

    words: list[Word]
    redirections: list[Word]
    shell: ShellCommand
    assignments: list[Word] = field(default_factory=list)
    heredoc: list[Word] = field(default_factory=list)

    @property
    def all_words(self) -> list[Word]:
        return [*self.assignments, *self.words, *self.redirections, *self.heredoc]

    @property
    def program(self) -> str:
        return PurePosixPath(self.words[0].text).name if self.words else ""

    @property
    def arguments(self) -> list[str]:
        return [word.text for word in self.words[1:]]


@dataclass(slots=True)
class _RunScope:
    """State of one RUN."""

    directory: PurePosixPath
    variables: dict[str, str]
    block: Wish | None = None
    pending: list[_Command] = field(default_factory=list)
    """`mkdir` and `cd` that may belong to the next block."""
    reason: str = ""
    """Reason why an earlier command was not translated, if later commands may need its result."""


class RunTranslator:
    """Translates the RUN instructions of a stage into a proposal."""

    def __init__(self, proposal: Proposal, index: ReverseIndex, context: Path) -> None:
        self._proposal = proposal
        self._index = index
        self._context = context
        self._sources: dict[str, Wish] = {}
        """Directories and file names of downloaded components."""
        self._options: list[Word] = []
        """Options of pip whose fate depends on the packages after them."""
        self._number = 0

    def run(self, instruction: Instruction, directory: PurePosixPath, variables: Mapping[str, str]) -> None:
        """Translate one RUN."""
        scope = _RunScope(directory, dict(variables))
        if wish := self._source_of(str(directory)):
            scope.block = wish
        for pipeline in self._pipelines(self.commands(instruction, scope)):
            self._pipeline(pipeline, scope)
        self._flush(scope)

    def commands(self, instruction: Instruction, scope: _RunScope) -> list[_Command]:
        """Return the commands of a RUN with all of their words in the account."""
        text, lines = instruction.text, instruction.line_at
        self._number += 1
        for flag in instruction.flags:
            word = self._word(flag, flag, instruction.line)
            if flag.startswith("--mount=type=cache") or flag == "--network=default":
                replace([word], "Bakehouse caches downloads itself")
            elif flag.startswith(("--mount=type=secret", "--mount=type=ssh")):
                untranslate(
                    [word], "build steps of a recipe get no secrets; use this machine's pip configuration"
                )
            else:
                untranslate([word], "steps of a recipe have no options")
        if words := instruction.words:
            if (
                PurePosixPath(words[0]).name in _SHELLS
                and len(words) > 2
                and re.fullmatch(r"-\w*c", words[1])
            ):
                self._number += 1
                replace(
                    [self._word(w, w, instruction.line) for w in words[:2]], "its commands are translated"
                )
                return [*self._split(words[2], lambda _: instruction.line, scope)]
            return [*self._split(shlex.join(words), lambda _: instruction.line, scope)]
        if not instruction.heredocs:
            return [*self._split(text, lines, scope)]
        is_script = re.fullmatch(r"(?:(?:/bin/)?(?:ba)?sh(?:\s+-\w+)*\s+)?\d*<<-?[\"']?[^\s<]+", text.strip())
        content, first = instruction.heredocs[0], instruction.heredoc_lines[0]
        shebang = content.partition("\n")[0]
        if is_script and (
            not shebang.startswith("#!") or re.search(r"/(?:ba)?sh\b|env (?:ba)?sh\b", shebang)
        ):
            self._number += 1
            outer = [self._word(raw, raw, instruction.line) for raw in text.split()]
            replace(outer, "its commands are translated")
            body = content if not shebang.startswith("#!") else content.partition("\n")[2]
            shift = 0 if body is content else 1
            return [*self._split(body, lambda offset: first + shift + body.count("\n", 0, offset), scope)]
        commands = [*self._split(text, lines, scope)]
        for body, start in zip(instruction.heredocs, instruction.heredoc_lines, strict=True):
            for number, line in enumerate(body.splitlines()):
                if line.strip() and commands:
                    commands[-1].heredoc.append(self._word(line.strip(), line.strip(), start + number))
        return commands

    def _word(self, raw: str, text: str, line: int) -> Word:
        return self._proposal.account.add(Word(line, raw, text, "RUN", self._number))

    def _split(self, text: str, line_at: object, scope: _RunScope) -> Iterator[_Command]:
        assert callable(line_at)
        for shell in split_commands(text):
            self._number += 1
            words = [self._shell_word(word, line_at(word.start), scope) for word in shell.words]
            redirections = [self._shell_word(word, line_at(word.start), scope) for word in shell.redirections]
            _hide_secrets(words)
            command = _Command(words, redirections, shell)
            if shell.is_compound:
                yield command
                continue
            while command.words and (match := ASSIGNMENT.fullmatch(command.words[0].raw)):
                word = command.words.pop(0)
                value = unquoted(match["value"], scope.variables)
                word.text = f"{match['name']}={value}"
                word.shown = f"{match['name']}=…"
                command.assignments.append(word)
                if not command.words:
                    scope.variables[match["name"]] = value
            arguments = command.arguments
            if command.program == "export":
                for word in command.words[1:]:
                    if match := ASSIGNMENT.fullmatch(word.text):
                        scope.variables[match["name"]] = match["value"]
                        word.shown = f"{match['name']}=…"
            while command.words and (
                command.program in _PREFIXES or (command.program == "env" and arguments)
            ):
                command.assignments.append(command.words.pop(0))
                while command.words and command.words[0].raw.startswith("-"):
                    command.assignments.append(command.words.pop(0))
                while command.words and ASSIGNMENT.fullmatch(command.words[0].text):
                    word = command.words.pop(0)
                    word.shown = f"{word.text.partition('=')[0]}=…"
                    command.assignments.append(word)
                arguments = command.arguments
            inner = self._inner(command)
            if inner is None:
                yield command
                continue
            position, word = inner
            outer = [*command.assignments, *command.words[:position], *command.words[position + 1 :]]
            replace(
                [word for word in outer if not ASSIGNMENT.fullmatch(word.text)], "its commands are translated"
            )
            untranslate(outer, _ONE_COMMAND)
            self._proposal.account.words.remove(word)
            for number, nested in enumerate(self._split(word.text, lambda _, line=word.line: line, scope)):
                nested.shell.before = nested.shell.before if number else shell.before
                nested.redirections += command.redirections if not number else []
                yield nested

    def _shell_word(self, word: ShellWord, line: int, scope: _RunScope) -> Word:
        return self._word(word.raw, unquoted(word.raw, scope.variables), line)

    def _inner(self, command: _Command) -> tuple[int, Word] | None:
        """Return the argument of `sh -c` and its position."""
        if command.program in _SHELLS:
            for position, word in enumerate(command.words[1:-1], 1):
                if re.fullmatch(r"-\w*c", word.text):
                    return position + 1, command.words[position + 1]
        return None

    def _pipelines(self, commands: Sequence[_Command]) -> Iterator[list[_Command]]:
        pipeline: list[_Command] = []
        for command in commands:
            if pipeline and command.shell.before not in ("|", "|&"):
                yield pipeline
                pipeline = []
            pipeline.append(command)
        if pipeline:
            yield pipeline

    def _pipeline(self, pipeline: list[_Command], scope: _RunScope) -> None:
        words = [word for command in pipeline for word in command.all_words]
        if (
            len(pipeline) > 1
            and pipeline[0].program in ("yes", "echo")
            and pipeline[0].arguments in ([], ["yes"], ["y"])
        ):
            replace(pipeline[0].all_words, "Bakehouse installs packages without prompts")
            pipeline = pipeline[1:]
        first = pipeline[0]
        if first.shell.is_compound:
            self._flush(scope)
            untranslate(words, _SCRIPT)
            scope.reason = _SCRIPT
            return
        if source := self._find(words, first):
            self._start(source, pipeline, scope)
            return
        if scope.block and all(self._is_member(command, scope) for command in pipeline):
            self._join(pipeline, scope)
            return
        if first.shell.before == "||" and scope.block and first.program in ("true", ":"):
            scope.block.words += words
            return
        if first.shell.before == "||":
            untranslate(words, "a recipe has no alternatives: a step that fails ends the build")
            return
        if len(pipeline) > 1:
            self._flush(scope)
            self._other_pipeline(pipeline, words, scope)
            return
        self._command(first, scope)

    def _find(self, words: Sequence[Word], command: _Command) -> ComponentSource | None:
        """Return the component that a download of a pipeline belongs to."""
        if command.program in ("apt-get", "apt") or _PIP.fullmatch(command.program):
            return None
        if _PYTHON.fullmatch(command.program) and "pip" in command.arguments[:2]:
            return None
        for word in words:
            if source := self._index.find(word.text):
                return source
        return None

    def _start(self, source: ComponentSource, pipeline: list[_Command], scope: _RunScope) -> None:
        """Begin the block of a component with its download."""
        words = [word for command in pipeline for word in command.all_words]
        text = next(word.text for word in words if self._index.find(word.text))
        version = source.version
        first = pipeline[0]
        branch = ""
        for option, value in zip(first.words, first.words[1:], strict=False):
            if option.text in ("-b", "--branch"):
                branch = value.text
                version = version_in(branch) or version
        line = words[0].line
        asked = f"=={version}" if version else ""
        if source.component == "python" and version:
            asked = f"=={'.'.join(version.split('.')[:2])}.*"
        label = f"{source.component} {version or branch}".rstrip()
        wish = Wish((source.component,), asked, source.variant, line, [], text=label)
        first_wish = self._proposal.wishes.get(source.component)
        joined = self._proposal.wish(wish)
        if joined is not wish and asked and joined.specifier != asked:
            untranslate(words, f"line {joined.line} selects {joined.text}")
        joined.words += words
        if branch and not version and branch not in ("main", "master") and first_wish is None:
            detail = f"the recipe has a release of {source.component}, not the branch {branch}"
            self._proposal.account.note(line, f"git clone --branch {branch}", detail)
        for command in scope.pending:
            joined.words += command.all_words
            for argument in command.arguments:
                if argument.startswith("/") and len(PurePosixPath(argument).parts) > 2:
                    self._sources[argument.rstrip("/")] = joined
        scope.pending.clear()
        for command in pipeline:
            self._remember(command, text, joined, scope)
        scope.block = joined

    def _remember(self, command: _Command, text: str, wish: Wish, scope: _RunScope) -> None:
        """Remember the names of files and directories that a download creates."""
        if len(scope.directory.parts) > 2:
            self._sources[str(scope.directory)] = wish
        address = text.removesuffix("/download").partition("?")[0].rstrip("/")
        names = [PurePosixPath(address).name]
        if command.program == "git":
            valued = ("-b", "--branch", "--depth", "-j", "--jobs", "-c", "-o", "--origin", "--reference")
            arguments, _ = _without_options(command.words[1:], valued)
            if len(arguments) > 2:
                names = [arguments[-1].text]
            names[0] = names[0].removesuffix(".git")
        for option, value in zip(command.words, command.words[1:], strict=False):
            if option.text in _OUTPUTS and not value.text.startswith("-") and value.text not in (".", "/"):
                names.append(value.text)
        for name in names:
            path = name.replace("~", "/root", 1).replace("$HOME", "/root")
            for form in (path, _UNPACKED.sub("", _UNPACKED.sub("", path))):
                full = joined_path(scope.directory, form)
                if command.program == "git" and len(full.parts) > 2 and not _CACHES.match(str(full)):
                    self._proposal.prefixes.setdefault(str(full), wish)
                if len(full.parts) > 2 or "/" not in form:
                    self._sources[str(full) if "/" in form or len(full.parts) > 2 else form] = wish
                    self._sources.setdefault(PurePosixPath(form).name, wish)
        if match := re.match(
            r"v?(\d[\w.]*)$", _UNPACKED.sub("", _UNPACKED.sub("", PurePosixPath(address).name))
        ):
            # Archives of GitHub unpack to the name of the repository with the version.
            parts = PurePosixPath(address.partition("github.com/")[2]).parts
            if len(parts) > 1:
                self._sources[f"{parts[1]}-{match[1]}"] = wish

    def _source_of(self, path: str) -> Wish | None:
        """Return the component in whose source a path of the image is."""
        place = PurePosixPath(path.replace("~", "/root", 1).replace("$HOME", "/root"))
        for name, wish in self._sources.items():
            if name.startswith("/") and place.is_relative_to(name):
                return wish
            if not name.startswith("/") and name in place.parts:
                return wish
        return None

    def _is_member(self, command: _Command, scope: _RunScope) -> bool:
        """Return whether a command belongs to the build of the present component."""
        program, arguments = command.program, command.arguments
        if command.shell.is_compound:
            return False
        raw = command.words[0].text if command.words else ""
        if not command.words:
            return bool(command.assignments)
        inside = self._source_of(str(scope.directory)) is not None
        if program in _MOVES or program == "chmod":
            return all(
                self._is_inside(argument, scope, inside) for argument in arguments if argument[:1] != "-"
            )
        if program in ("apt-get", "apt", "yum", "dnf", "pyenv", *_CONDA):
            return False
        if _PIP.fullmatch(program) or (_PYTHON.fullmatch(program) and "pip" in arguments[:2]):
            start = arguments.index("pip") + 1 if "pip" in arguments[:2] else 0
            rest = [word for word in arguments[start:] if not word.startswith("-")]
            paths = [word for word in rest[1:] if re.match(r"\.|/|dist/|.*\.whl$", word)]
            is_own = rest[:1] in (["install"], ["wheel"]) and len(paths) == len(rest) - 1 and bool(paths)
            return is_own or (
                inside
                and rest[:1] == ["install"]
                and any(w in arguments for w in ("-r", "-e", "."))
                and len(rest) <= 2
            )
        if _PYTHON.fullmatch(program):
            script = next((argument for argument in arguments if not argument.startswith("-")), "")
            if script and self._source_of(script):
                return True
            return bool(arguments) and (
                arguments[0] in ("setup.py", "-m") or arguments[0].endswith(("/setup.py",))
            )
        if program == "cd":
            return True
        if program == "mkdir":
            return all(
                self._is_inside(argument, scope, inside) for argument in arguments if argument[:1] != "-"
            )
        if program in ("wget", "curl", "git"):
            # Another download is not part of it; `git checkout` is.
            return not any(_URL.match(argument) for argument in arguments) and program == "git"
        if program in ("echo", "printf", "tee"):
            return any("ld.so.conf.d" in word.text for word in command.redirections + command.words)
        if program == "find":
            return inside
        if program in ("test", "export", "touch", "install", "dpkg", "rpm", "gpg"):
            return inside or program in ("export",)
        if program in _SHELLS:
            script = next((argument for argument in arguments if not argument.startswith("-")), "")
            return bool(script) and (not script.startswith("/") or self._source_of(script) is not None)
        return raw.startswith(("./", "../")) or program in _BUILD_PROGRAMS or self._source_of(raw) is not None

    def _is_inside(self, path: str, scope: _RunScope, inside: bool) -> bool:
        if re.fullmatch(r"\d+|[ugoa]*[+-][rwx]+", path):
            return True
        if self._source_of(path) or _CACHES.match(path):
            return True
        known = next((prefix for prefix in self._proposal.prefixes if path.startswith(prefix)), "")
        return bool(known) or (not path.startswith(("/", "~", "$")) and (inside or scope.block is not None))

    def _join(self, pipeline: list[_Command], scope: _RunScope) -> None:
        assert scope.block is not None
        for command in pipeline:
            scope.block.words += command.all_words
            if command.program in ("cd", "pushd") and command.arguments:
                target = command.arguments[0]
                if re.match(r"\w", target):
                    self._sources.setdefault(PurePosixPath(target).name, scope.block)
                self._change_directory(command, scope)
            if command.program == "git" and command.arguments[:1] == ["checkout"]:
                version = version_in(" ".join(command.arguments[1:]))
                if version and not scope.block.specifier:
                    scope.block.specifier = f"=={version}"
                    scope.block.text = f"{scope.block.name} {version}"
            for word in command.words:
                match = re.match(
                    r"(?:--prefix=|-DCMAKE_INSTALL_PREFIX=|(?:INSTALL_)?PREFIX=|prefix=)(/.+)", word.text
                )
                if match:
                    self._proposal.prefixes.setdefault(match[1].rstrip("/"), scope.block)
            for word in command.assignments:
                if match := re.match(r"(?:INSTALL_)?PREFIX=(/.+)", word.text):
                    self._proposal.prefixes.setdefault(match[1].rstrip("/"), scope.block)
            for option, value in zip(command.words, command.words[1:], strict=False):
                if option.text in ("-p", "--prefix") and value.text.startswith("/"):
                    self._proposal.prefixes.setdefault(value.text.rstrip("/"), scope.block)

    def _change_directory(self, command: _Command, scope: _RunScope) -> None:
        target = next((word for word in command.arguments if not word.startswith("-")), "/root")
        scope.directory = joined_path(
            scope.directory, target.replace("~", "/root", 1).replace("$HOME", "/root")
        )

    def _flush(self, scope: _RunScope) -> None:
        """Decide `mkdir` and `cd` that belong to no component."""
        for command in scope.pending:
            if command.program == "mkdir":
                self._plain(command, scope)
            elif scope.reason:
                untranslate(command.all_words, scope.reason)
            else:
                replace(command.all_words, "paths of the recipe are absolute")
        scope.pending.clear()

    def _other_pipeline(self, pipeline: list[_Command], words: list[Word], scope: _RunScope) -> None:
        addresses = [word.text for word in words if _URL.match(word.text)]
        if any(_SSH.search(word.text) for word in words):
            self._proposal.ssh_words += words
            return
        if reason := next((reason for text in addresses if (reason := self._index.replacement(text))), ""):
            replace(words, reason)
            return
        if any(
            command.program in ("apt-key", "gpg") or "trusted.gpg" in word.text or "keyrings" in word.text
            for command in pipeline
            for word in command.all_words
        ):
            untranslate(words, "Bakehouse uses no further apt repositories; write a component with the files")
            return
        if not addresses and all(command.program in (*_PLAIN, "grep", "cat") for command in pipeline):
            self._as_step(pipeline, words, scope)
            return
        scope.reason = _DOWNLOAD if addresses else _UNKNOWN
        untranslate(words, scope.reason)

    def _command(self, command: _Command, scope: _RunScope) -> None:
        words = command.all_words
        program = command.program
        if not command.words:
            replace(list(command.assignments), "the value is in the words that use it")
            untranslate(words, _UNKNOWN)
            return
        if scope.block and program in ("cd", "pushd"):
            self._join([command], scope)
            return
        if program in ("cd", "mkdir", "pushd"):
            if program != "mkdir":
                self._change_directory(command, scope)
                if wish := self._source_of(str(scope.directory)):
                    for pending in scope.pending:
                        wish.words += pending.all_words
                    scope.pending.clear()
                    scope.block = wish
                    wish.words += words
                    return
            if any(_SSH.search(word.text) for word in words):
                self._proposal.ssh_words += words
                return
            scope.pending.append(command)
            return
        self._flush(scope)
        if program in _CONDA and command.arguments[:1] == ["run"]:
            self._conda_run(command, scope)
            return
        if _PYTHON.fullmatch(program) and command.arguments[:2] == ["-m", "pip"]:
            self._pip(command, command.words[3:], scope)
        elif program == "uv" and command.arguments[:1] == ["pip"]:
            self._pip(command, command.words[2:], scope)
        elif _PIP.fullmatch(program):
            self._pip(command, command.words[1:], scope)
        elif program in ("apt-get", "apt", "aptitude"):
            self._apt(command)
        elif program in ("yum", "dnf", "microdnf"):
            self._dnf(command)
        elif program in _CONDA:
            self._conda(command)
        elif program in _WITHOUT_EFFECT:
            replace(words, "a build ends at the first error")
        elif program == "export" or program == "unset":
            self._assigned(command.words[1:], _ONE_COMMAND)
            settled = [word for word in command.words[1:] if word.fate]
            replace(command.words[:1] if settled else [], "the value is in the words that use it")
        elif any(_SSH.search(word.text) for word in words) or program in ("ssh-keygen", "sshd"):
            self._proposal.ssh_words += words
        elif self._is_python_setup(command):
            self._proposal.python_words += words
        elif program == "rm" and all(
            _CACHES.match(word) or word.startswith("-") for word in command.arguments
        ):
            replace(words, "Bakehouse keeps no caches and temporary files in images")
        elif program == "rm" and all(
            word.startswith("-") or self._source_of(word) or self._proposal.prefix_of(word)
            for word in command.arguments
        ):
            self._remove_source(command)
        elif program == "rm" and all(word.startswith(("-", "/etc/apt/")) for word in command.arguments):
            replace(words, "Bakehouse installs distribution packages itself and keeps no lists")
        elif any(word.text.startswith("/etc/apt/") for word in words) and program in _PLAIN:
            replace(words, _BAKEHOUSE_APT)
        elif program in _PLAIN and re.match(r"(?:/usr)?(?:/s?bin/)?[\w\[]", command.words[0].text):
            self._plain(command, scope)
        else:
            self._unknown(command, scope)
        self._assigned(command.assignments, _ONE_COMMAND)
        self._redirected(command)

    def _redirected(self, command: _Command) -> None:
        """Decide the redirections of commands that become packages or requirements."""
        if command.redirections and any(word.fate is None for word in command.words):
            deferred = (self._proposal.ssh_words, self._proposal.python_words)
            if any(command.redirections[0] in words for words in deferred):
                return
        for word, following in zip(command.redirections, [*command.redirections[1:], None], strict=False):
            # `pip install a>=2`
            glued = re.fullmatch(r"\d*[<>]+[\d=].*", word.raw)
            if glued or (following and word.raw in ("<", ">") and re.match(r"[=\d]", following.raw)):
                untranslate([word, *([following] if following and not glued else [])], _QUOTE)
            replace([word], "Bakehouse keeps the log of a build")

    def _is_deferred(self, word: Word) -> bool:
        """Return whether the fate of a word depends on a component."""
        return any(word in wish.words for wish in self._proposal.wishes.values())

    def _remove_source(self, command: _Command) -> None:
        for word in command.words[1:]:
            wish = self._source_of(word.text) or self._proposal.prefix_of(word.text)
            if wish:
                wish.words += command.all_words
                return

    def _assigned(self, words: Sequence[Word], reason: str) -> None:
        for word in words:
            name = word.text.partition("=")[0]
            if name in BUILD_VARIABLES:
                replace([word], "it only matters to the steps of a Dockerfile")
            elif word.text in _PREFIXES or word.text == "env":
                replace([word], "steps run as root")
        untranslate(words, reason)

    def _is_python_setup(self, command: _Command) -> bool:
        """Return whether a command selects the Python that `python` starts, or makes an environment."""
        program, text = command.program, " ".join(command.arguments)
        if program in ("update-alternatives", "ln", "alternatives", "rm"):
            programs = [word for word in command.arguments if re.search(r"\b(?:python|pip)[\d.]*$", word)]
            if program == "rm" and len(programs) < sum(word[:1] != "-" for word in command.arguments):
                return False
            version = re.search(r"\bpython(3\.\d+)", text)
            known = self._proposal.wishes.get("python")
            if version and program != "rm" and not (known and known.specifier):
                self._python_wish(version[1], command.words)
            return bool(programs)
        if program in (".", "source"):
            return "activate" in text or "conda" in text or ".bashrc" in text
        if program == "add-apt-repository":
            return "deadsnakes" in text
        if program == "uv" and command.arguments[:1] in (["venv"], ["python"]):
            if match := re.search(r"(?:--python[ =]|-p |install )(\d\.\d+)", text):
                self._python_wish(match[1], command.words)
            return True
        if program == "pyenv":
            if command.arguments[:1] in (["install"], ["global"]) and (
                match := re.search(r"\b(3\.\d+)", text)
            ):
                self._python_wish(match[1], command.words)
            return True
        if program in ("virtualenv",) or (
            _PYTHON.fullmatch(program)
            and command.arguments[:2] in (["-m", "venv"], ["-m", "virtualenv"], ["-m", "ensurepip"])
        ):
            directory = command.arguments[-1] if command.arguments else ""
            if directory.startswith("/"):
                self._proposal.prefixes[directory.rstrip("/")] = self._proposal.wish(
                    Wish(("python",), line=command.words[0].line)
                )
            return True
        return _PYTHON.fullmatch(program) is not None and command.arguments[:1] == ["--version"]

    def _python_wish(self, version: str, words: list[Word]) -> None:
        wish = Wish(("python",), f"=={version}.*", "", words[0].line, [*words], text=f"python {version}")
        self._proposal.wish(wish)

    def _unknown(self, command: _Command, scope: _RunScope) -> None:
        words, program = command.all_words, command.program
        reason = _UNKNOWN
        if command.heredoc:
            reason = _SCRIPT_FILE if program not in ("cat", "tee") else _CONTENT_FILE
            untranslate(words, reason)
            return
        addresses = [word.text for word in words if _URL.match(word.text)]
        if missing := next((text for address in addresses if (text := self._index.missing(address))), ""):
            reason = missing
        elif own := next((text for address in addresses if (text := self._index.replacement(address))), ""):
            replace(words, own)
            return
        elif program in ("curl", "wget", "git", "aria2c") or addresses:
            reason = _DOWNLOAD
        elif program == "apk":
            reason = "Bakehouse does not install packages with apk; use the names of Debian in `packages`"
        elif program in ("poetry", "pdm", "pipenv", "uv"):
            reason = f"export a requirements file from {program} and name it in `requirements`"
        elif program in ("npm", "yarn", "cargo", "go", "gem"):
            reason = f"Bakehouse does not install packages with {program}; write a component"
        elif program in ("apt-key", "add-apt-repository", "dpkg", "apt-mark", "apt-cache"):
            reason = "Bakehouse uses only the packages of the base's distribution"
        scope.reason = reason
        untranslate(words, reason)

    def _plain(self, command: _Command, scope: _RunScope) -> None:
        words = command.all_words
        targets = [word.text for word in command.redirections if word.text.startswith("/")]
        parents = [str(PurePosixPath(target).parent) for target in targets if not target.startswith("/dev/")]
        if scope.reason and command.program != "mkdir":
            untranslate(words, "it may need the result of a command that is not translated")
            return
        if command.heredoc:
            untranslate(words, _CONTENT_FILE)
            return
        unknown = next((parent for parent in parents if not self._exists(parent)), "")
        if unknown:
            scope.reason = f"the image of the recipe may have no {unknown}"
            untranslate(words, scope.reason)
            return
        forced = any(re.fullmatch(r"-\w*f\w*|--force", argument) for argument in command.arguments)
        plain = [argument for argument in command.arguments if not argument.startswith("-")]
        if command.program == "rm" and any(_OF_COMPONENTS.match(argument) for argument in plain):
            untranslate(words, "steps of `run` come after the components; check that none of them needs it")
            return
        if any(target.startswith("/etc/yum.repos.d/") for target in targets):
            untranslate(words, "Bakehouse uses only the packages of the base's distribution")
            return
        if command.program in ("cp", "mv"):
            for argument in plain[:-1]:
                if not argument.startswith("/") and not self._exists(
                    str(joined_path(scope.directory, argument))
                ):
                    scope.reason = f"the image of the recipe may have no {argument}"
                    untranslate(words, scope.reason)
                    return
        if command.program in _NEEDS_SOURCE or (command.program == "rm" and not forced):
            for argument in command.arguments:
                is_path = argument.startswith("/") and not argument.startswith(tuple(f"s{c}" for c in "/|@#"))
                if is_path and not self._exists(argument):
                    scope.reason = f"the image of the recipe may have no {argument}"
                    untranslate(words, scope.reason)
                    return
        self._as_step([command], words, scope)

    def _exists(self, path: str) -> bool:
        if any(PurePosixPath(path).is_relative_to(missing) for missing in self._proposal.missing):
            return False
        made = (word for text, _ in self._proposal.run for word in text.split() if text.startswith("mkdir"))
        return bool(
            _SYSTEM.match(path)
            or self._proposal.copied(path)
            or any(path.startswith(word) for word in made if word[:1] == "/")
        )

    def _as_step(self, pipeline: list[_Command], words: list[Word], scope: _RunScope) -> None:
        text = " | ".join(_step(command, scope.variables) for command in pipeline)
        if secret_in(text):
            untranslate(words, "it looks like a secret; set it when the job starts")
            return
        relative = [
            argument
            for command in pipeline
            for argument in command.arguments
            if re.match(r"(?!\d+$)[\w.]+(?:/|$)", argument)
            and command.program in ("mkdir", "cp", "mv", "rm", "chmod", "touch")
        ]
        names = {name for command in pipeline for word in command.words for name in _variables(word.raw)}
        if unknown := sorted(names - {*_SHELL_VARIABLES, *scope.variables}):
            untranslate(words, f"the Dockerfile does not say the value of {unknown[0]}")
            scope.reason = scope.reason or _UNKNOWN
            return
        if relative and not self._exists(str(scope.directory)):
            untranslate(words, f"the image of the recipe may have no {scope.directory}")
            return
        if relative and scope.directory != PurePosixPath("/"):
            text = f"cd {shlex.quote(str(scope.directory))} && {text}"
        settled = [word for word in words if word.fate is None]
        self._proposal.run.append((text, settled))
        place(settled, "run")

    def _apt(self, command: _Command) -> None:
        words, options = _without_options(command.words[1:], _APT_VALUES)
        if words and (reason := _APT_REFUSED.get(words[0].text)):
            untranslate(command.words, reason)
            return
        for option in options:
            name = option[0].text
            if _APT_HARMLESS.fullmatch(name):
                replace(option, _BAKEHOUSE_APT)
            else:
                # The value may be a proxy with a password.
                for word in option:
                    word.shown = word.text.partition("=")[0] if word.text.startswith("-") else "…"
                untranslate(option, "a recipe has no options of apt")
        if not words:
            replace(command.words, _BAKEHOUSE_APT)
            return
        verb, packages = words[0].text, words[1:]
        if verb in _APT_UNNEEDED:
            replace([command.words[0], words[0]], _BAKEHOUSE_APT)
            untranslate(packages, "it has no equivalent in a recipe")
            return
        if verb not in ("install", "satisfy"):
            untranslate(command.words, "it has no equivalent in a recipe")
            return
        for word in packages:
            self._apt_package(word)
        replace([command.words[0], words[0]], _BAKEHOUSE_APT)

    def _apt_package(self, word: Word) -> None:
        name, _, version = word.text.partition("=")
        name, suite, _ = name.partition("/")
        name = name.partition(":")[0]
        if (
            not APT_PACKAGE.fullmatch(name)
            or word.text.endswith(".deb")
            or has_variables(word.text)
            or _UNSAFE.search(word.text)
        ):
            untranslate([word], "it is not a package of the distribution; write a component with the file")
            return
        if name == "software-properties-common":
            # It only adds repositories.
            replace([word], "Bakehouse uses no further apt repositories")
            return
        if match := _PYTHON_PACKAGE.fullmatch(name):
            if match["version"]:
                self._python_wish(match["version"], [word])
            else:
                self._proposal.python_words.append(word)
            return
        if component := self._index.find_apt(name):
            number = version_in(version)
            asked = f"=={number}" if number and component == "nccl" else ""
            wish = Wish((component,), asked, "", word.line, [word], text=f"apt-get install {word.text}")
            self._proposal.wish(wish)
            return
        if version or suite:
            self._proposal.account.note(
                word.line, f"RUN apt-get install {word.text}", "`bake lock` selects the version"
            )
        self._proposal.apt.setdefault(name, []).append(word)

    def _dnf(self, command: _Command) -> None:
        words, options = _without_options(
            command.words[1:], ("-c", "--enablerepo", "--disablerepo", "--releasever")
        )
        for option in options:
            if option[0].text in (
                "-y",
                "-q",
                "--assumeyes",
                "--nodocs",
                "--allowerasing",
                "--setopt=install_weak_deps=False",
            ):
                replace(option, _BAKEHOUSE_APT)
            untranslate(option, f"a recipe has no options of {command.program}")
        verb = words[0].text if words else ""
        if verb in ("clean", "makecache"):
            replace(command.words, _BAKEHOUSE_APT)
        elif verb in ("install", "localinstall", "-y"):
            for word in words[1:]:
                if (
                    _URL.match(word.text)
                    or word.text.endswith(".rpm")
                    or word.text.startswith("@")
                    or has_variables(word.text)
                ):
                    untranslate(
                        [word], "it is not a package of the distribution; write a component with the file"
                    )
                elif match := re.match(r"python(3\.\d+)(?:-\w+)?$", word.text):
                    self._python_wish(match[1], [word])
                else:
                    self._proposal.dnf.setdefault(word.text, []).append(word)
            # The base decides the fate of the packages
            replace([command.words[0], words[0]], _BAKEHOUSE_APT)
        else:
            reason = (
                "`bake lock` selects the versions; remove it"
                if verb in ("update", "upgrade")
                else (
                    "a recipe does not remove packages"
                    if verb in ("remove", "erase", "autoremove")
                    else "it has no equivalent in a recipe"
                )
            )
            untranslate(command.words, reason)

    def _conda_run(self, command: _Command, scope: _RunScope) -> None:
        outer = [command.words.pop(0), command.words.pop(0)]
        while command.words and command.words[0].text.startswith("-"):
            option = command.words.pop(0)
            outer.append(option)
            if option.text in ("-n", "-p", "--name", "--prefix") and command.words:
                outer.append(command.words.pop(0))
        self._proposal.python_words += outer
        if command.words:
            self._command(command, scope)

    def _conda(self, command: _Command) -> None:
        valued = ("-c", "--channel", "-n", "--name", "-p", "--prefix", "--file", "-f", "--solver")
        words, options = _without_options(command.words[1:], valued)
        verb = words[0].text if words else ""
        if verb == "env" or any(option[0].text in ("--file", "-f") for option in options):
            reason = (
                "export the environment with `pip list --format=freeze` and name the file in `requirements`"
            )
            untranslate(command.all_words, reason)
            return
        packages = words[1:] if verb in ("install", "create") else []
        for word in packages:
            match = re.fullmatch(
                r"(?:[\w-]+::)?([\w.-]+?)\s*(?:(==?|>=|<=|<|>)\s*([\w.*]+)(?:=\S+)?)?", word.text
            )
            name, operator, version = (match[1], match[2] or "", match[3] or "") if match else ("", "", "")
            if name == "python":
                self._python_wish(
                    ".".join(version.split(".")[:2]), [word]
                ) if version else self._proposal.python_words.append(word)
            elif name in (
                "pytorch",
                "torch",
                "pytorch-cuda",
                "cudatoolkit",
                "pytorch-gpu",
                "cuda-toolkit",
                "cpuonly",
            ):
                self._conda_pytorch(name, version, word)
            elif name and (components := self._index.find_pip(name)):
                asked = f"=={version}" if operator.startswith("=") and version else ""
                self._proposal.wish(
                    Wish(components, asked, "", word.line, [word], text=f"conda install {word.text}")
                )
            elif name in ("conda", "pip", "setuptools", "wheel", "conda-build", "mamba", "nomkl"):
                self._proposal.python_words.append(word)
            else:
                untranslate(
                    [word],
                    "add the package of the same name to the requirements, if the package index has it",
                )
        outer = [command.words[0], *words[:1], *(word for option in options for word in option)]
        if verb in (
            "install",
            "create",
            "clean",
            "init",
            "config",
            "activate",
            "update",
            "deactivate",
            "info",
            "list",
            "shell.bash",
        ):
            self._proposal.python_words += [*outer, *command.redirections]
        if verb == "update" and any(word.text not in ("conda", "--all") for word in words[1:]):
            untranslate(words[1:], "it has no equivalent in a recipe")
        self._proposal.python_words += words[1:] if verb not in ("install", "create") else []

    def _conda_pytorch(self, name: str, version: str, word: Word) -> None:
        number = "".join(version.split(".")[:2])
        variant = {
            "pytorch-cuda": f"cu{number}-*",
            "cudatoolkit": f"cu{number}-*",
            "cuda-toolkit": f"cu{number}-*",
        }.get(name, "")
        variant = "cpu-*" if name == "cpuonly" else variant if number else ""
        asked = (
            f"=={version}" if name in ("pytorch", "torch", "pytorch-gpu") and version.count(".") > 1 else ""
        )
        asked = asked or (f"=={version}.*" if name in ("pytorch", "torch") and version else "")
        self._proposal.wish(
            Wish(("pytorch",), asked, variant, word.line, [word], text=f"conda install {word.text}")
        )

    def _pip(self, command: _Command, words: list[Word], scope: _RunScope) -> None:
        head = [word for word in command.words if word not in words]
        if not words or words[0].text != "install":
            verb = words[0].text if words else ""
            if verb in ("cache", "check", "list", "freeze", "--version", "config", "show", ""):
                replace(command.words, _BAKEHOUSE_PIP)
            elif verb in ("uninstall", "remove"):
                untranslate(
                    command.words, "a recipe does not remove packages; leave them out of the requirements"
                )
            else:
                untranslate(command.words, "it has no equivalent in a recipe")
            return
        arguments = words[1:]
        index_words, index, packages = self._pip_options(arguments, scope)
        components = [self._pip_package(word, index) for word in packages]
        options = [word for word in arguments if word.fate is None and word in self._options]
        if components and all(components):
            replace(options, "components bring their own options")
        untranslate(options, "a recipe has no options of pip; check what it changes")
        if wish := self._proposal.wishes.get("pytorch"):
            wish.words += index_words
        else:
            untranslate(index_words, _OTHER_INDEX)
        replace([*head, words[0]], _BAKEHOUSE_PIP)
        for word in command.assignments:
            name = word.text.partition("=")[0]
            owner = next(
                (
                    component
                    for component in components
                    if component and self._index.sets_variable(component, name)
                ),
                "",
            )
            if owner:
                self._proposal.wishes[owner].words.append(word)
        command.assignments = [word for word in command.assignments if not self._is_deferred(word)]

    def _pip_options(self, words: list[Word], scope: _RunScope) -> tuple[list[Word], str, list[Word]]:
        """Settle the options of `pip install`.

        Return the words of PyTorch's index, its address, and the packages.
        """
        index_words: list[Word] = []
        packages: list[Word] = []
        index = ""
        position = 0
        while position < len(words):
            word = words[position]
            option, equals, value = word.text.partition("=")
            position += 1
            if not word.text.startswith("-"):
                packages.append(word)
                continue
            own = [word]
            if short := re.fullmatch(r"(-[rcfi])(\S+)", word.text):
                option, value = short[1], short[2]
            elif option in _PIP_VALUES and not equals and position < len(words):
                own.append(words[position])
                value = words[position].text
                position += 1
            if option in ("-r", "--requirement"):
                self._requirement_file(own, value, scope)
            elif option in ("-c", "--constraint"):
                self._constraint_file(own, value, scope)
            elif option in ("-e", "--editable"):
                if source := self._index.find(value):
                    self._source_wish(source, value, own)
                else:
                    untranslate(
                        own,
                        "copy the package with `files` or `code`, and its requirements into `requirements`",
                    )
            elif option in (*_PIP_INDEXES, "-f", "--find-links") and "pytorch.org" in value:
                index_words += own
                index = value
            elif option in _PIP_INDEXES:
                untranslate(own, _OTHER_INDEX)
            elif option in _PIP_HARMLESS:
                replace(own, _BAKEHOUSE_PIP)
            else:
                if option in ("--proxy", "--log"):
                    own[-1].shown = option if len(own) == 1 else "…"
                self._options += own
        return index_words, index, packages

    def _pip_package(self, word: Word, index: str) -> str:
        """Translate one package; return its component."""
        text = word.text
        if _URL.match(text) or re.fullmatch(r".+ ?@ ?(?:https?|git\+).*", text):
            return self._pip_address(word)
        if (
            text.startswith((".", "/"))
            or text.endswith(".whl")
            or has_variables(text)
            or "*" in text.partition("=")[0]
        ):
            reason = "copy the package with `files` or `code`, and its requirements into `requirements`"
            if has_variables(text):
                reason = "pin a version in a requirements file: the Dockerfile does not say its value"
            untranslate([word], reason)
            return ""
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            reason = "pin a version in a requirements file, or copy the package with `files` or `code`"
            untranslate([word], reason)
            return ""
        name = str(canonicalize_name(requirement.name))
        specifier = str(requirement.specifier)
        components = self._index.find_pip(name)
        if components:
            variant = ""
            if local := re.search(r"\+(cu\d+|cpu)", specifier):
                variant = f"{local[1]}-*"
                specifier = specifier.replace(local[0], "")
            if components[0] == "pytorch" and (match := re.search(r"/(cu\d+|cpu)\b", index)):
                variant = f"{match[1]}-*"
            if components[0] == "tensorflow":
                variant = (
                    "cpu-*" if name.endswith("-cpu") else "cuda-*" if "and-cuda" in requirement.extras else ""
                )
            if (requirement.extras and components[0] != "tensorflow") or requirement.marker:
                kept = f"the component `{components[0]}` has no extras or markers"
                self._proposal.account.note(word.line, f"RUN pip install {text}", kept)
            self._proposal.wish(
                Wish(components, specifier, variant, word.line, [word], text, f"pip install {text}")
            )
            return components[0]
        if name in _INSTALLERS and not specifier:
            replace([word], _BAKEHOUSE_PIP)
        elif name in _INSTALLERS:
            untranslate([word], "add it to the requirements if your code imports it")
        else:
            self._proposal.requirements.setdefault(text, []).append(word)
        return ""

    def _pip_address(self, word: Word) -> str:
        text = word.text
        _name, at, address = text.partition("@") if not _URL.match(text) else ("", "", text)
        address = address.strip()
        if source := self._index.find(address):
            return self._source_wish(source, text, [word])
        if missing := self._index.missing(address):
            untranslate([word], missing)
            return ""
        has_login = re.match(r"\w[\w+]*://[^/]*@", address) is not None and not address.startswith(
            "git+ssh://git@"
        )
        if at and not has_login and not has_variables(text):
            self._proposal.requirements.setdefault(text, []).append(word)
            return ""
        egg = re.search(r"#egg=([\w.-]+)", address)
        wheel = ""
        if address.partition("?")[0].endswith(".whl"):
            try:
                wheel = str(parse_wheel_filename(address.rpartition("/")[2].replace("%2B", "+"))[0])
            except (InvalidWheelFilename, ValueError):
                wheel = ""
        known = egg[1] if egg else wheel
        if known and not has_login and not has_variables(text):
            line = f"{known} @ {address.partition('#')[0]}"
            self._proposal.requirements.setdefault(line, []).append(word)
            return ""
        untranslate([word], "add `NAME @ URL` to the requirements, with a commit or a version in the URL")
        return ""

    def _source_wish(self, source: ComponentSource, text: str, words: list[Word]) -> str:
        asked = f"=={source.version}" if source.version else ""
        wish = Wish(
            (source.component,), asked, source.variant, words[0].line, words, text=f"pip install {text}"
        )
        if components := self._index.find_pip(source.component):
            wish = changed(
                wish, components=(source.component, *(c for c in components if c != source.component))
            )
        self._proposal.wish(wish)
        return source.component

    def _context_file(self, name: str, scope: _RunScope) -> str:
        """Return the file of the build context that a path of the image was copied from."""
        sources = [source for _, source in self._proposal.sources(str(joined_path(scope.directory, name)))]
        sources = [source for source in sources or [name.removeprefix("./")] if not source.startswith("/")]
        return next((source for source in sources if is_file(self._context / source)), "")

    def _requirement_file(self, words: list[Word], name: str, scope: _RunScope) -> None:
        source = self._context_file(name, scope)
        if not source:
            if _URL.match(name):
                reason = "download the file into the project and name it in `requirements`"
            else:
                sources = self._proposal.sources(str(joined_path(scope.directory, name)))
                missing = next((source for _, source in sources), name.removeprefix("./"))
                reason = f"`{missing}` does not exist next to the Dockerfile"
            untranslate(words, reason)
            return
        self._proposal.requirement_files.setdefault(source, []).extend(words)
        self._read_requirements(source, words[0].line)

    def _constraint_file(self, words: list[Word], name: str, scope: _RunScope) -> None:
        source = self._context_file(name, scope)
        if source:
            self._proposal.constraint_files.setdefault(source, []).extend(words)
        else:
            untranslate(
                words, "copy the file into the project, and add a line `-c FILE` to the requirements file"
            )

    def _read_requirements(self, source: str, line: int) -> None:
        """Add the components that a requirements file names; list its options."""
        text = read_text(self._context / source, errors="replace")
        index = ""
        for number, row in enumerate(text.splitlines(), 1):
            option = re.match(r"\s*(-{1,2}[a-z-]+)(?:[\s=]+(\S+))?", row)
            if option and option[1] not in ("-r", "-c", "--requirement", "--constraint"):
                index = (
                    option[2] or "" if "index" in option[1] and "pytorch.org" in (option[2] or "") else index
                )
                reason = "remove the option: `bake lock` reads indexes from pip's configuration"
                shown = Word(line, row, row.strip(), "")
                self._proposal.account.note(line, f"{source}:{number}: {shown.report_text}", reason)
                continue
            match = re.match(r"\s*([A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*([=<>!~][^;#]*)?", row)
            components = self._index.find_pip(match[1]) if match else ()
            # Others are installed as requirements.
            if match and components and components[0] in ("pytorch", "tensorflow", "sagemaker-training"):
                specifier = (match[2] or "").strip()
                local = re.search(r"\+(cu\d+|cpu)", specifier) or re.search(r"/(cu\d+|cpu)\b", index)
                variant = f"{local[1]}-*" if local else ""
                specifier = re.sub(r"\+(cu\d+|cpu)", "", specifier)
                self._proposal.wish(
                    Wish(components, specifier, variant, line, [], row.strip(), f"{source}:{number}")
                )


def joined_path(directory: PurePosixPath, path: str) -> PurePosixPath:
    """Return a path of the image without `.` and `..`."""
    parts: list[str] = []
    for part in (directory / path).parts:
        if part == "..":
            parts = parts[:-1] if len(parts) > 1 else parts
        else:
            parts.append(part)
    return PurePosixPath(*parts) if parts else PurePosixPath("/")


def _hide_secrets(words: Sequence[Word]) -> None:
    """Hide the values of options that are secret by their names."""
    for word, following in zip(words, [*words[1:], None], strict=False):
        if word.text.startswith("-") and _SECRET.search(word.text):
            name, equals, _ = word.text.partition("=")
            if equals:
                word.shown = f"{name}=…"
            elif following:
                following.shown = "…"


def _step(command: _Command, variables: Mapping[str, str]) -> str:
    """Return a command for `run`, with the values of the Dockerfile's variables."""
    assignments = [word for word in command.assignments if ASSIGNMENT.fullmatch(word.raw)]
    shell = [*assignments, *command.words, *command.redirections]
    return " ".join(_with_values(word.raw, variables) for word in shell)


def _variables(raw: str) -> list[str]:
    """Return the variables of a word that the shell replaces."""
    unquoted_parts = re.sub(r"'[^']*'|\\\$", "", raw)
    return re.findall(r"\$\{?([A-Za-z_]\w*)", unquoted_parts)


def _with_values(raw: str, variables: Mapping[str, str]) -> str:
    """Return a word as written, with the variables that the Dockerfile sets replaced."""
    if "$" not in raw or raw.startswith("'"):
        return raw
    text = expanded(raw, variables)
    return (
        text
        if text == raw or raw.startswith('"') or re.fullmatch(r"[\w./:=@%+,-]+", text)
        else json.dumps(text)
    )


def _without_options(words: Sequence[Word], valued: Sequence[str]) -> tuple[list[Word], list[list[Word]]]:
    """Return the arguments, and the options with their values."""
    arguments: list[Word] = []
    options: list[list[Word]] = []
    rest = iter(words)
    for word in rest:
        if word.text in valued:
            following = next(rest, None)
            options.append([word, following] if following else [word])
        elif word.text.startswith("-"):
            options.append([word])
        else:
            arguments.append(word)
    return arguments, options
