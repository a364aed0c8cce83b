"""Translation of RUN: installations and blocks of components are lifted, everything else is kept as it is."""

import itertools
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from bakehouse.catalog.run_steps import PLACES, RunStep
from bakehouse.commands.dockerfile_import.account import Fate, InstructionEntry, has_secret
from bakehouse.commands.dockerfile_import.index import ComponentSource, ReverseIndex, version_in
from bakehouse.commands.dockerfile_import.installs import names, read_install, without_prefixes
from bakehouse.commands.dockerfile_import.lifts import URL, Lift, Lifter, joined_path
from bakehouse.commands.dockerfile_import.proposal import (
    BUILD_VARIABLES,
    CopiedFile,
    KeptStep,
    Proposal,
    Wish,
)
from bakehouse.commands.dockerfile_import.shell import (
    Node,
    ShellCommand,
    assignments,
    redirected,
    split_commands,
    variables_in,
    word_values,
    words_of,
)
from bakehouse.util.dockerfile_reader import Instruction

_SHELLS = ("sh", "bash", "dash", "zsh")
_NEUTRAL = ("set", "true", ":", "shopt", "ulimit", "umask", "export", "unset", "echo", "exit", "ldconfig")
_OFFLINE = frozenset(names("offline"))
"""Programs that use no network. A step with others may."""
_READ_NO_VARIABLES = frozenset(("curl", "wget", "git", "unzip", "gpg", "apt-get", "apt", "dpkg"))
"""Programs that only write files that they name; the last three also change packages of the distribution."""
_FILE_PROGRAMS = ("cp", "mv", "ln", "rm", "echo", "printf", "cat", "tee", "sed", "chmod", "chown", "touch")
_WRITERS = (*_FILE_PROGRAMS, "mkdir", "rmdir", "patch", "install")
_CACHES = re.compile(
    r"/var/lib/apt|/var/cache|/tmp\b|/var/tmp|/root/\.cache|~/\.cache|\$HOME/\.cache|/var/log|/etc/apt/"
)
_SSH = re.compile(r"/etc/ssh/|/\.ssh\b|/run/sshd|pam\.d/sshd|authorized_keys|sshd_config|ssh_config")
_OUTPUTS = ("-o", "-O", "--output", "--output-document", "-C", "-P", "--directory-prefix", "--directory")
_UNPACKED = re.compile(r"\.(?:tar(?:\.\w+)?|tgz|tbz2?|txz|zip|sh|run|git|gz)$")
_OF_APT = re.compile(
    r"\bapt\b|\bapt-|dpkg|keyring|\.deb\b|sources\.list|nodesource|\bgpg\b|\byum\b|\bdnf\b|rpm"
)
_OF_PIP = re.compile(
    r"\bpip[\d.]*\b|site-packages|dist-packages|\buv\b|conda|setup\.py|poetry|\bpython[\d.]*\b"
)
_ADVICE = names("advice")
_ONLY_HEREDOC = re.compile(r"\d*<<-?[\"']?[^\s<\"']+[\"']?")
_TOP = PurePosixPath("/")
_SHELL_VARIABLES = names("shell_variables")
_NO_SECRETS = "build steps of a recipe get no secrets"
_FIND_OUT = "find out what it downloads, or try it with `network: false`"


@dataclass(slots=True)
class RunState:
    """State of a stage where a RUN starts."""

    directory: PurePosixPath = _TOP
    is_directory_known: bool = False
    """A WORKDIR set the directory; else it is that of the base."""
    user: str = ""
    shell: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    """Known values of ARG and ENV."""
    exported: dict[str, str] = field(default_factory=dict)
    """Values that only a step sees: of ARG, and of ENV that the recipe does not have."""
    secrets: set[str] = field(default_factory=set)
    paths: dict[str, str] = field(default_factory=dict)
    """Lists of directories with references to earlier values."""


@dataclass(slots=True)
class _Part:
    """A command of a RUN with what becomes of it: `keep`, `lift`, `block`, `ssh`, `python` or `neutral`."""

    command: ShellCommand
    fate: str
    reason: str = ""
    lift: Lift | None = None
    wish: Wish | None = None
    directory: PurePosixPath = _TOP


class RunTranslator:
    """Translates the RUN instructions of a stage into a proposal."""

    def __init__(self, proposal: Proposal, index: ReverseIndex, context: Path) -> None:
        self._proposal = proposal
        self._index = index
        self.lifter = Lifter(proposal, index, context)
        self._owned: dict[str, Wish] = {}
        """Files and directories of the sources of components."""
        self._directory = PurePosixPath("/")
        self._variables: dict[str, str] = {}
        self._level = 0
        """The highest layer that has content of earlier instructions."""
        self._bounds: list[tuple[int, int]] = []
        """For each kept step, the first and the last place that it may have."""
        self._low, self._limit = 0, len(PLACES)
        """The same for the kept commands of this RUN."""
        self.unknown_base = ""
        """A base that the recipe replaces by another one, and whose settings are not known."""

    def run(self, instruction: Instruction, entry: InstructionEntry, state: RunState) -> None:
        """Translate one RUN."""
        text, shell = self._text(instruction, state)
        self._directory, self._variables = state.directory, {"HOME": "/root", **state.variables}
        mounted = len(self._proposal.files)
        flags = [*self._flags(instruction, entry)]
        commands = split_commands(text)
        if commands and len(commands) == 1 and (inner := _inner_shell(commands[0], state.variables)):
            shell, text = inner
            commands = split_commands(text)
        if commands is None:
            self._low, self._limit = self._first_place(text), len(PLACES)
            self._keep_text(text, entry, state, shell, ())
            return
        parts = self._parts(commands)
        without_network = "--network=none" in instruction.flags
        if without_network or "<<" in text:
            for part in parts:
                part.fate = "keep" if part.fate == "lift" else part.fate
        self._settle(parts, entry)
        if _NO_SECRETS in flags and all(part.fate != "keep" for part in parts):
            entry.check(f"{_NO_SECRETS}; downloads use the logins of this machine")
        del self._proposal.files[mounted:]
        if kept := [part for part in parts if part.fate == "keep"]:
            if flags:
                advice = "; run this before the build, and name its files in `files`"
                entry.check(f"{flags[0]}{advice if flags[0] is _NO_SECRETS else ''}")
                return
            self._keep_parts(parts, kept, text, entry, state, shell, is_closed=without_network)

    def lifted(self, level: int) -> None:
        """Record content of an instruction other than RUN."""
        self._level = max(self._level, level)

    def keep(self, step: RunStep, entry: InstructionEntry) -> None:
        """Add a step that comes last."""
        self._bounds.append((len(PLACES), len(PLACES)))
        self._proposal.run.append(KeptStep(step, entry, step.command))

    def finish(self) -> None:
        """Give each kept step the last place that it may have."""
        place = len(PLACES)
        for kept, (_, last) in reversed([*zip(self._proposal.run, self._bounds, strict=True)]):
            place = min(place, last)
            before = PLACES[place] if place < len(PLACES) else ""
            step = kept.step
            kept.step = RunStep(step.command, step.network, before, step.shell, step.user)

    def _text(self, instruction: Instruction, state: RunState) -> tuple[str, tuple[str, ...]]:
        """Return the shell text of a RUN, and its shell if it is not that of the base."""
        if words := instruction.words:
            program = PurePosixPath(words[0]).name
            if program in _SHELLS and len(words) > 2 and re.fullmatch(r"-\w*c", words[-2]):
                return words[-1], () if [*words[:-1]] == ["/bin/sh", "-c"] else tuple(words[:-1])
            return shlex.join(words), ()
        if instruction.heredocs and _ONLY_HEREDOC.fullmatch(instruction.text.strip()):
            body = instruction.heredocs[0]
            first, _, rest = body.partition("\n")
            return (rest, (*first[2:].split(), "-c")) if first.startswith("#!") else (body, state.shell)
        names = re.findall(r"<<-?[\"']?([^\s<\"']+)", instruction.text) if instruction.heredocs else []
        texts = [f"{body}{name}\n" for body, name in zip(instruction.bodies, names, strict=False)]
        return "\n".join([instruction.text, *(["".join(texts)] if names else [])]), state.shell

    def _flags(self, instruction: Instruction, entry: InstructionEntry) -> Iterator[str]:
        """Yield why a step of the recipe cannot run with the options of a RUN."""
        for flag in instruction.flags:
            name, _, value = flag.partition("=")
            options = dict(option.strip("\"'").partition("=")[::2] for option in value.split(","))
            kind = options.get("type", "bind")
            if name == "--mount" and kind in ("secret", "ssh"):
                yield _NO_SECRETS
            elif name == "--mount" and kind not in ("cache", "tmpfs"):
                source = options.get("source") or options.get("src", "")
                target = next(
                    (options[key] for key in ("target", "dst", "destination") if key in options), source
                )
                if source and "from" not in options:
                    path = str(joined_path(self._directory, target))
                    self._proposal.files.append(CopiedFile(source, path, entry))
                yield f"it mounts {source or 'files'}; copy them with `files`"
            elif name == "--security":
                yield "steps of a recipe have no further privileges"

    def _parts(self, commands: tuple[ShellCommand, ...]) -> list[_Part]:
        parts: list[_Part] = []
        for command in commands:
            part = self._classify(command)
            if part.fate == "block":
                self._adopt(parts, part)
            parts.append(part)
        return parts

    def _adopt(self, parts: list[_Part], block: _Part) -> None:
        """Let a block own the directory that the commands before it made for it alone."""
        assert block.wish
        for part in reversed(parts):
            words = self._words(part.command.calls[0]) if part.command.calls else None
            program = words[0] if words else ""
            is_state = part.fate == "neutral" and program in ("cd", "set", "export")
            targets = {str(joined_path(part.directory, word)) for word in words[1:]} if words else set()
            if program == "mkdir" and part.fate == "keep":
                targets = {target for target in targets if "/-" not in target}
                if not all(
                    str(block.directory).startswith(target) or target in self._owned for target in targets
                ):
                    return
                self._owned |= dict.fromkeys(targets, block.wish)
                part.fate, part.wish = "block", block.wish
            elif not is_state:
                return

    def _known_words(self, call: Node) -> list[str]:
        """Return the words of a command, with `?` for those that only the shell knows."""
        if call["Type"] == "DeclClause":
            return ["export"]
        values = [word_values(word, self._variables) for word in call.get("Args") or ()]
        return [text for words in values for text in (["?"] if words is None else words)]

    def _words(self, call: Node) -> list[str] | None:
        """Return the words of a plain command; None if only a shell knows one of them."""
        words = self._known_words(call)
        return None if "?" in words else words

    def _texts(self, node: Node) -> list[str]:
        """Return all words of a command as far as they are known."""
        return [text for word in words_of(node) for text in (word_values(word, self._variables) or ())]

    def _classify(self, command: ShellCommand) -> _Part:
        part = _Part(command, "keep", directory=self._directory)
        texts = self._texts(command.node)
        words = self._words(command.calls[0]) if command.is_plain else None
        given = assignments(command.calls[0], self._variables) if command.is_plain else {}
        if words is not None and (decided := self._state_or_installation(words, given, part)):
            return decided
        if not command.is_plain and (yes := self._after_yes(command)):
            return self._installation(*yes, part) or part
        if wish := self._whole_block(command):
            self._remember_prefixes(words or [], given, wish)
            part.fate, part.wish = "block", wish
        elif reason := next((reason for text in texts if (reason := self._index.replacement(text))), ""):
            part.fate, part.reason = "neutral", reason
        elif words and self._is_python_setup(without_prefixes(words), part):
            pass
        elif self._is_ssh(command.calls, without_prefixes(words) if words else texts):
            part.fate = "ssh"
        elif words:
            program, *rest = without_prefixes(words)
            paths = [word for word in rest if not word.startswith("-")]
            if program in _NEUTRAL and program not in ("echo", "ldconfig"):
                part.fate, part.reason = "neutral", "a build ends at the first error"
            elif program == "rm" and paths and all(map(_CACHES.match, paths)):
                part.fate, part.reason = "neutral", "Bakehouse keeps no caches and temporary files in images"
        return part

    def _after_yes(self, command: ShellCommand) -> tuple[list[str], Node] | None:
        """Return the installer after `yes |`."""
        node = command.node.get("Cmd") or {}
        if len(command.calls) == 2 and node.get("Type") == "BinaryCmd" and node["Op"] == "|":
            first, second = (self._words(call) for call in command.calls)
            if first and second and first in (["yes"], ["yes", "y"], ["echo", "yes"], ["echo", "y"]):
                return second, command.calls[1]
        return None

    def _state_or_installation(
        self, words: list[str], given: Mapping[str, str | None], part: _Part
    ) -> _Part | None:
        """Decide a command that changes the variables or the directory, or installs packages."""
        if not words or words[0] == "export":
            self._variables |= {name: value for name, value in given.items() if value is not None}
            part.fate, part.reason = "neutral", "the value is in the words that use it"
            return part
        rest = without_prefixes(words)
        if rest[0] not in ("cd", "pushd"):
            return self._installation(words, part.command.calls[0], part)
        target = joined_path(self._directory, rest[1] if len(rest) > 1 else "/root")
        self._unpacked(target)
        part.fate, part.reason = "neutral", "paths of the recipe are absolute"
        if wish := self._owner(str(target)) or self._owner(str(self._directory)):
            part.fate, part.wish = "block", wish
        self._directory = target
        return part

    def _installation(self, words: list[str], call: Node, part: _Part) -> _Part | None:
        install = read_install(words)
        if install is None:
            return None
        if install.is_unneeded:
            part.fate, part.reason = "neutral", "Bakehouse keeps no lists and caches of packages"
            if install.tool == "conda":
                part.fate, part.reason = "python", ""
            return part
        if wish := self._member(without_prefixes(words)):
            part.fate, part.wish = "block", wish
            return part
        given = {name for name in assignments(call, self._variables) if name not in BUILD_VARIABLES}
        plan = self.lifter.plan(install, self._directory, given)
        if isinstance(plan, str):
            part.reason = plan
        else:
            part.fate, part.lift = "lift", plan
        return part

    def _owner(self, path: str) -> Wish | None:
        """Return the component in whose sources a path of the image is."""
        place = PurePosixPath(path)
        return next((wish for name, wish in self._owned.items() if place.is_relative_to(name)), None)

    def _unpacked(self, target: PurePosixPath) -> None:
        """Let a component own a directory that is named like the archive next to it."""
        for name, wish in [*self._owned.items()]:
            archive = PurePosixPath(name)
            if archive.parent == target.parent and archive.name.startswith(f"{target.name}-"):
                self._owned[str(target)] = wish

    def _member(self, words: list[str], *, piped: bool = False) -> Wish | None:
        """Return the component whose sources a command uses, and no other files."""
        program = PurePosixPath(words[0]).name
        inside = self._owner(str(self._directory))
        plain = [word for word in words[1:] if not word.startswith("-") and not re.match(r"\w+=", word)]
        owners = [
            owner
            for word in (words[0], *plain)
            if (owner := self._owner(str(joined_path(self._directory, word.rstrip("*")))))
        ]
        if install := read_install(words):
            own = [word for word in install.packages if re.match(r"[./]|.*\.whl$", word)]
            is_own = len(own) == len(install.packages) and (own or install.options)
            return inside or next(iter(owners), None) if is_own and install.tool == "pip" else None
        if any(URL.match(word) for word in words) and not (inside and program in ("pip", "make")):
            return None
        if program in _WRITERS:
            outside = [
                word
                for word in plain
                if word.startswith("/") and not self._owner(word) and not _CACHES.match(word)
            ]
            if (
                program in ("cp", "mv", "ln", "install")
                and outside == plain[-1:]
                and outside[0][:5] == "/usr/"
            ):
                outside = []
            return None if outside else (next(iter(owners), None) or (inside if plain else None))
        return next(iter(owners), None) or inside

    def _whole_block(self, command: ShellCommand) -> Wish | None:
        """Return the component whose block a pipeline or a list is, with all of its commands."""
        saved = self._directory, {**self._variables}, {**self._owned}
        calls = [words for call in command.calls if (words := self._known_words(call))]
        is_whole = True
        wish: Wish | None = None
        sources = [self._index.find(word) for words in calls for word in words]
        targets = [word_values(word, self._variables) or ["/"] for word in redirected(command.node)]
        for target in (text for texts in targets for text in texts):
            is_log = target in ("/dev/null", "1", "2") or "ld.so.conf.d" in target or _CACHES.match(target)
            is_whole = is_whole and bool(is_log or self._owner(str(joined_path(self._directory, target))))
        for words in calls if is_whole else ():
            program = PurePosixPath(without_prefixes(words)[0]).name
            if "?" in words and (program == "?" or program in _WRITERS or read_install(words)):
                is_whole = False
                break
            source = next((source for word in words if (source := self._index.find(word))), None)
            if source:
                wish = self._download(source, calls, command)
            elif program in ("cd", "pushd"):
                self._directory = joined_path(self._directory, words[1] if len(words) > 1 else "/root")
                wish = wish or self._owner(str(self._directory))
            elif member := self._member(words):
                wish = member
            elif program not in _NEUTRAL and not (any(sources) and _reads_pipe(words)):
                is_whole = False
        if is_whole and wish:
            return wish
        self._directory, self._variables, self._owned = saved
        return None

    def _download(self, source: ComponentSource, calls: list[list[str]], command: ShellCommand) -> Wish:
        """Add a component, and remember the files and directories that its download creates."""
        version, branch = source.version, ""
        words = next(words for words in calls if any(self._index.find(word) for word in words))
        text = next(word for word in words if self._index.find(word))
        for option, value in itertools.pairwise(words):
            if option in ("-b", "--branch"):
                branch, version = value, version_in(value) or version
        asked = f"=={version}" if version else ""
        if source.component == "python" and version:
            asked = f"=={'.'.join(version.split('.')[:2])}.*"
        label = f"{source.component} {version or branch}".rstrip()
        wish = self._proposal.wish(Wish((source.component,), asked, source.variant, 0, label))
        address = text.removesuffix("/download").partition("?")[0].rstrip("/")
        names = [PurePosixPath(address).name]
        if PurePosixPath(words[0]).name == "git":
            names[0] = names[0].removesuffix(".git")
            valued = ("-b", "--branch", "--depth", "-j", "--jobs", "-c", "-o", "--origin", "--reference")
            skipped = {position + 1 for position, word in enumerate(words) if word in valued}
            plain = [
                word
                for position, word in enumerate(words)
                if position not in skipped and not word.startswith("-")
            ]
            names = [plain[-1]] if plain[-1] != text else names
        folders = [""]
        for option, value in (pair for call in calls for pair in itertools.pairwise(call)):
            if option in _OUTPUTS and not value.startswith("-"):
                place = folders if option in ("-C", "-P", "--directory-prefix", "--directory") else names
                place.append(value)
        parts = PurePosixPath(address.partition("github.com/")[2]).parts
        if match := re.match(r"v?(\d[\w.]*)$", _UNPACKED.sub("", _UNPACKED.sub("", names[0]))):
            names += [f"{parts[1]}-{match[1]}"] if len(parts) > 1 else []
        for name in names:
            once = _UNPACKED.sub("", name)
            for form in {name, once, _UNPACKED.sub("", once), re.sub(r"\.(?:gz|bz2|xz)$", "", name)}:
                for folder in folders:
                    path = joined_path(joined_path(self._directory, folder), form)
                    if path != self._directory and len(path.parts) > 1 and form not in (".", "", "/"):
                        self._owned[str(path)] = wish
                        if len(path.parts) > 2 and not _CACHES.match(str(path)) and words[0] == "git":
                            self._proposal.prefixes.setdefault(str(path), wish)
        return wish

    def _remember_prefixes(self, words: list[str], given: Mapping[str, str | None], wish: Wish) -> None:
        """Remember the directories that a build of a component installs to."""
        pairs = [f"{name}={value}" for name, value in given.items()]
        for word in (*words, *pairs):
            match = re.match(r"(?:--prefix=|-DCMAKE_INSTALL_PREFIX=|(?:INSTALL_)?PREFIX=|prefix=)(/.+)", word)
            if match:
                self._proposal.prefixes.setdefault(match[1].rstrip("/"), wish)
        for option, value in itertools.pairwise(words):
            if option in ("-p", "--prefix") and value.startswith("/"):
                self._proposal.prefixes.setdefault(value.rstrip("/"), wish)
        if words[:2] == ["git", "checkout"] and (version := version_in(" ".join(words[2:]))):
            wish.specifier = wish.specifier or f"=={version}"
            wish.text = f"{wish.name} {version}"

    def _is_ssh(self, calls: tuple[Node, ...], texts: list[str]) -> bool:
        """Return whether commands only configure SSH."""
        paths = [text for text in texts if text.startswith(("/", "~"))]
        programs = {words[0] for call in calls if (words := self._words(call))}
        return (bool(programs & {"ssh-keygen", "sshd"}) and all(map(_SSH.search, paths))) or (
            bool(paths) and all(map(_SSH.search, paths)) and programs <= {*_WRITERS, "grep", "service"}
        )

    def _is_python_setup(self, words: list[str], part: _Part) -> bool:
        """Find commands that select the Python that `python` starts, or make an environment."""
        program = PurePosixPath(words[0]).name
        text = " ".join((program, *words[1:]))
        if not any(re.fullmatch(pattern, text) for pattern in names("python_setup")):
            return False
        if re.search(r"\b(?:venv|virtualenv)\b", text) and words[-1].startswith("/"):
            self._proposal.prefixes[words[-1].rstrip("/")] = self._proposal.wish(Wish(("python",)))
        known = self._proposal.wishes.get("python")
        match = re.search(r"(?:\bpython[ =]?|-p |install |global )(3\.\d+)", text)
        is_used = (
            match and program != "rm" and (program in ("uv", "pyenv") or not (known and known.specifier))
        )
        part.fate, part.reason = "python", match[1] if match and is_used else ""
        return True

    def _settle(self, parts: list[_Part], entry: InstructionEntry) -> None:
        """Apply what is lifted, in order; an installation that depends on a kept neighbour is kept, too.

        If no place is right for the kept commands around what is lifted, all are kept as they are.
        """
        saved = self._level, [*self._bounds]
        self._decide(parts)
        if self._low > self._limit:
            self._level, self._bounds = saved
            for part in parts:
                if part.fate == "lift":
                    part.fate, part.reason = "keep", "it may depend on the kept command before it"
            self._decide(parts)
        for part in parts:
            if part.fate == "lift" and part.lift:
                before = self._counts()
                part.lift.apply(entry)
                for key, count in self._counts().items():
                    if count > before[key]:
                        entry.add(Fate.RECIPE, f"`{key}`")
            elif part.fate == "block" and part.wish:
                part.wish.line = part.wish.line or entry.line
                part.wish.entries.append(entry)
            elif part.fate == "ssh":
                self._proposal.ssh_entries.append(entry)
            elif part.fate == "python":
                self._proposal.python_entries.append(entry)
                if part.reason:
                    self.lifter.python(part.reason, entry)
            elif part.fate == "neutral" and all(other.fate != "keep" for other in parts):
                entry.add(Fate.REPLACED, part.reason)

    def _decide(self, parts: list[_Part]) -> None:
        """Decide which installations are lifted, and the bounds of the place of the kept commands."""
        pending: list[str] = []
        self._low, self._limit = 0, len(PLACES)
        for part in parts:
            if part.fate == "lift" and part.lift and self._must_stay(part.lift, pending):
                part.fate, part.reason = "keep", "it may depend on the kept command before it"
            if part.fate == "keep":
                pending.append(part.command.text)
                self._low = max(self._low, self._first_place(part.command.text))
            elif part.fate in ("lift", "block"):
                self.lifted(part.lift.level if part.lift else 1)

    def _counts(self) -> dict[str, int]:
        proposal = self._proposal
        files = len(proposal.requirement_files) + len(proposal.constraint_files)
        return {
            "packages": len(proposal.apt) + len(proposal.dnf),
            "requirements": len(proposal.requirements) + files,
        }

    def _must_stay(self, lift: Lift, pending: list[str]) -> bool:
        """Return whether an installation must follow a kept command that must follow another one.

        A kept command that may change what the installation finds comes before its layer. That works only if
        the command, and all kept ones before it, use nothing of this layer or a higher one.
        """
        place = lift.level - 1
        blocking = [number for number, kept in enumerate(self._proposal.run) if _may_change(kept.text, lift)]
        bounds = self._bounds[: max(blocking, default=-1) + 1]
        is_pending = any(_may_change(text, lift) for text in pending)
        if is_pending:
            bounds = [*self._bounds, (self._low, place)]
        if any(low > place for low, _ in bounds):
            return True
        if is_pending:
            self._limit = min(self._limit, place)
        for number in blocking:
            low, high = self._bounds[number]
            self._bounds[number] = (low, min(high, place))
        return False

    def _first_place(self, text: str) -> int:
        """Return the first place at which a kept command finds all that it may use."""
        place = min(self._level, 2)
        paths = (path for path in re.findall(r"[\w./~-]+", text) if path != ".")
        copied = (str(joined_path(self._directory, path)) for path in paths)
        inside = self._directory != _TOP and self._proposal.copied(str(self._directory))
        return len(PLACES) if inside or any(map(self._proposal.copied, copied)) else place

    def _keep_parts(
        self,
        parts: list[_Part],
        kept: list[_Part],
        text: str,
        entry: InstructionEntry,
        state: RunState,
        shell: tuple[str, ...],
        *,
        is_closed: bool,
    ) -> None:
        """Keep the commands of a RUN that are not lifted, in their order."""
        uses_apt = any(_OF_APT.search(part.command.text) for part in kept)
        left = [part for part in parts if part.fate in ("keep", "neutral")]
        if not uses_apt:
            left = [part for part in left if not part.reason.startswith("Bakehouse keeps no lists")]
        reasons = [part.reason for part in kept if part.reason]
        if len(left) == len(parts):
            self._keep_text(text, entry, state, shell, reasons, is_closed=is_closed)
            return
        lines: list[str] = []
        directory = state.directory
        for number, part in enumerate(left):
            if part.fate == "keep" and part.directory != directory:
                lines.append(f"cd {shlex.quote(str(part.directory))}")
                directory = part.directory
            joint = " &&" if number and part.command.follows == "&&" else ""
            if joint and lines:
                lines[-1] += joint
            lines.append(part.command.text)
            words = self._words(part.command.calls[0]) if part.command.calls else None
            if words and words[0] == "cd":
                directory = joined_path(directory, words[1] if len(words) > 1 else "/root")
        self._keep_text("\n".join(lines), entry, state, shell, reasons, is_closed=is_closed)

    def _keep_text(
        self,
        text: str,
        entry: InstructionEntry,
        state: RunState,
        shell: tuple[str, ...],
        reasons: Sequence[str],
        *,
        is_closed: bool = False,
    ) -> None:
        if reason := self.refusal(text, state):
            entry.check(reason)
            return
        commands, programs = split_commands(text) or (), _all_programs(text)
        network = not is_closed and not programs <= _OFFLINE
        lines = [*_surroundings(text, state, is_plain=programs <= _OFFLINE | _READ_NO_VARIABLES)]
        is_list = all(command.is_list and command.follows != ";" for command in commands)
        if not shell and not (commands and is_list):
            lines.append("set +e")
        command = "\n".join([*lines, text.strip()])
        advice = ""
        if network:
            tools = {install.tool for words in _calls(commands) if (install := read_install(words))}
            advice = next((text for name, text in _ADVICE.items() if name in programs | tools), _FIND_OUT)
        self._bounds.append((max([self._low, *(low for low, _ in self._bounds)]), self._limit))
        step = RunStep(command, network, "", shell, state.user)
        self._proposal.run.append(KeptStep(step, entry, text, advice))
        why = f" ({reasons[0]})" if reasons else ""
        entry.add(Fate.KEPT, f"step {len(self._proposal.run)} of `run`{why}")
        if network:
            entry.note(f"step {len(self._proposal.run)} of `run` may use the network: {advice}")
        if self.unknown_base:
            self._note_unknown(text, entry, state)
        if _OF_PIP.search(text) and re.search(r"install|site-packages|dist-packages", text):
            entry.note("it changes Python packages that no lock names")

    def _note_unknown(self, text: str, entry: InstructionEntry, state: RunState) -> None:
        """List what a kept command may use of a base whose settings are not known."""
        own = {*re.findall(r"\b([A-Za-z_]\w*)=|\b(?:for|read) (\w+)", text)}
        known = {*state.variables, *_SHELL_VARIABLES, *itertools.chain.from_iterable(own)}
        if missing := sorted({*variables_in(text)} - known):
            entry.note(f"the value of {', '.join(missing)} is not known: {self.unknown_base} may set it")
        if not state.is_directory_known:
            reason = "the working directory and the user of the base are not known"
            self._proposal.image_entry.note(f"{reason}; steps of `run` start in / as root")

    def refusal(self, text: str, state: RunState) -> str:
        """Return why a command cannot be kept; empty if it can."""
        if has_secret(text) or state.secrets & {*variables_in(text)}:
            return "it contains a secret, which everybody who pulls the image could read"
        directory = str(self._directory)
        words = re.findall(r"[^\s'\"=;|&<>()]+", text)
        for word in words:
            path = str(joined_path(state.directory, word))
            if path in self._proposal.missing:
                return self._proposal.missing[path]
            if (wish := self._owner(path)) or (wish := self._proposal.prefix_of(path)):
                return f"it uses the sources of {wish.name}, which the component replaces"
        if wish := self._owner(directory) or self._owner(str(state.directory)):
            return f"it uses the sources of {wish.name}, which the component replaces"
        return ""


def _reads_pipe(words: list[str]) -> bool:
    """Return whether a command reads its program or archive from a pipe."""
    plain = [word for word in words[1:] if not word.startswith("-")]
    program = PurePosixPath(words[0]).name
    return program in ("tar", "gunzip", "tee") or (
        not plain and bool(re.fullmatch(r"(?:ba|z|da)?sh|python[\d.]*", program))
    )


def _inner_shell(command: ShellCommand, variables: Mapping[str, str]) -> tuple[tuple[str, ...], str] | None:
    """Return the shell and the text of `sh -c TEXT`."""
    if not command.is_plain or not command.calls or command.calls[0].get("Assigns"):
        return None
    words: list[str] = []
    for argument in command.calls[0].get("Args") or ():
        values = word_values(argument, {})
        if values is None:
            return None
        words += values
    if len(words) == 3 and PurePosixPath(words[0]).name in _SHELLS and re.fullmatch(r"-\w*c", words[1]):
        return ((words[0], words[1]) if words[:2] != ["sh", "-c"] else ()), words[2]
    return None


def _programs(command: ShellCommand) -> Iterator[str]:
    for words in _calls((command,)):
        inner = split_commands(words[2]) if words[0] in _SHELLS and words[1:2] == ["-c"] else None
        for nested in inner or ():
            yield from _programs(nested)
        if not inner:
            yield words[0]
    first = [call["Args"][0] for call in command.calls if call.get("Args") and call["Type"] == "CallExpr"]
    if any(word_values(word, {}) is None for word in first):
        yield "?"


def _calls(commands: tuple[ShellCommand, ...]) -> Iterator[list[str]]:
    for command in commands:
        for call in command.calls:
            if call["Type"] == "DeclClause":
                yield [call["Variant"]["Value"]]
                continue
            words = [(word_values(word, {}) or ["?"]) for word in call.get("Args") or ()]
            if flat := [value for values in words for value in values]:
                yield flat


def _all_programs(text: str) -> set[str]:
    """Return the names of the programs of a kept command; `?` for those that only the shell knows."""
    commands = split_commands(text)
    return {PurePosixPath(name).name for command in commands or () for name in _programs(command)} or {"?"}


def _may_change(text: str, lift: Lift) -> bool:
    """Return whether a kept command may change what an installation finds.

    Programs that write only the files that they name do not, unless the text names files of the installer.
    """
    of_system = lift.tool in ("apt", "dnf")
    harmless = _OFFLINE | _READ_NO_VARIABLES - ({"apt-get", "apt", "dpkg"} if of_system else set())
    named = _OF_APT.search(text) if of_system else re.search(r"-packages\b|\bpip|\buv\b|conda", text)
    return bool(named or not _all_programs(text) <= harmless or any(file in text for file in lift.files))


def _surroundings(text: str, state: RunState, *, is_plain: bool) -> Iterator[str]:
    """Yield the lines that restore the directory and the variables of a kept command."""
    if state.is_directory_known and state.directory != PurePosixPath("/"):
        place = shlex.quote(str(state.directory))
        yield f"mkdir -p {place} && cd {place}"
    for name, value in state.exported.items():
        if re.search(rf"\b{re.escape(name)}\b", text) or not is_plain:
            yield f"export {name}={shlex.quote(value)}"
    for name, value in state.paths.items():
        if not is_plain:
            yield f'export {name}="{value}"'
