"""The structure of the code: who imports whom, names of classes, and sizes of modules and functions."""

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from bakehouse.catalog.project import HOME
from tests.support.syntax import statements

MAX_IMPORTS = 35
MAX_PARAMETERS = 8

_TEST_MODULE = re.compile(r"\btests(?:\.\w+)*?\.(?:test_\w+|conftest)\b")
_MAYBE_TEST_MODULE = re.compile(
    r"tests\.[\w.]*(?:test_|conftest|\{)|from \.|from tests[\w.]* import[\s\w,(#]*?(?:test_|conftest)"
)
"""Text of each file that imports one; most files have none, and need no parser."""
_COMPUTED_MODULE = re.compile(r"tests\.(?:\w+\.)*")


def read_sources(*patterns: str) -> dict[str, str]:
    """Return the text of Python files by path."""
    paths = sorted({path for pattern in patterns for path in HOME.glob(pattern)})
    return {str(path.relative_to(HOME)): path.read_text(encoding="utf-8") for path in paths}


@cache
def nodes(source: str) -> tuple[ast.AST, ...]:
    """Return the classes, functions and imports of a file."""
    kinds = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return tuple(node for node in statements(ast.parse(source)) if isinstance(node, kinds))


def imported_names(source: str, package: str) -> Iterator[str]:
    """Yield what a module of a package imports, with its module: `a.b` for `from a import b`."""
    for node in nodes(source):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*parents, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def imported_test_modules(path: str, source: str) -> list[str]:
    """Return the test modules and conftests that a file imports, also by a name in a string."""
    if not _MAYBE_TEST_MODULE.search(source):
        return []
    package = str(Path(path).parent).replace("/", ".")
    every = [*ast.walk(ast.parse(source))]
    strings = [node.value for node in every if isinstance(node, ast.Constant)]
    texts = [text for text in strings if isinstance(text, str)]
    computed = [
        value.value
        for node in every
        if isinstance(node, ast.JoinedStr)
        for value in node.values[:1]
        if isinstance(value, ast.Constant) and _COMPUTED_MODULE.fullmatch(str(value.value))
    ]
    named = [
        name for text in [*imported_names(source, package), *texts] for name in _TEST_MODULE.findall(text)
    ]
    return sorted({*named, *computed})


def repeated_classes(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the public classes that are defined more than once, with the files."""
    files = defaultdict(list)
    for path, source in sources.items():
        for node in nodes(source):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                files[node.name].append(path)
    return {name: paths for name, paths in files.items() if len(paths) > 1}


def imported_modules(path: str, source: str, modules: Collection[str]) -> set[str]:
    """Return which of the modules a file imports."""
    package = str(Path(path).parent).replace("/", ".")
    names = imported_names(source, package)
    return {name if name in modules else name.rpartition(".")[0] for name in names} & {*modules}


def long_signatures(source: str, limit: int) -> list[str]:
    """Return the functions with more parameters than the limit, with their numbers."""
    functions = []
    for node in nodes(source):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            positional = [*node.args.posonlyargs, *node.args.args]
            if positional and positional[0].arg in ("self", "cls"):
                del positional[0]
            count = len(positional) + len(node.args.kwonlyargs)
            if count > limit:
                functions.append(f"{node.name}: {count}")
    return functions


def module_names(paths: Collection[str]) -> set[str]:
    return {path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in paths}


def test_no_file_imports_a_test_module() -> None:
    sources = read_sources("tasks.py", *(f"{name}/**/*.py" for name in ("bakehouse", "benchmarks", "tests")))
    del sources[str(Path(__file__).relative_to(HOME))]
    imports = {path: imported_test_modules(path, source) for path, source in sources.items()}

    assert {"tests/conftest.py", "benchmarks/pull.py"} <= sources.keys()
    assert {path: names for path, names in imports.items() if names} == {}


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("from tests.plan.test_model import keys", "tests.plan.test_model"),
        ("from tests.plan import test_model", "tests.plan.test_model"),
        ("import tests.plan.test_model as model", "tests.plan.test_model"),
        ("from .test_model import keys", "tests.plan.test_model"),
        ("from . import test_model", "tests.plan.test_model"),
        ("from ..conftest import Tree", "tests.conftest"),
        ("from tests.conftest import Tree", "tests.conftest"),
        ("def test() -> None:\n    from tests.conftest import Tree", "tests.conftest"),
        ("pytest_plugins = ['tests.conftest']", "tests.conftest"),
        ("code = 'from tests.plan.test_model import keys'", "tests.plan.test_model"),
        ("import_module(f'tests.plan.{name}')", "tests.plan."),
    ],
)
def test_an_imported_test_module_is_found(source: str, name: str) -> None:
    assert imported_test_modules("tests/plan/test_diff.py", source) == [name]


@pytest.mark.parametrize(
    "source",
    [
        "from tests.support.trees import Tree",
        "from tests.integration import launches",
        "import pytest",
        "command = ['pytest', 'tests/plan/test_model.py']",
        "name = f'{tests}.plan'",
    ],
)
def test_a_helper_may_be_imported(source: str) -> None:
    assert imported_test_modules("tests/plan/test_diff.py", source) == []


def test_each_public_class_has_its_own_name() -> None:
    sources = read_sources("bakehouse/**/*.py")

    assert "bakehouse/errors.py" in sources
    assert repeated_classes(sources) == {}


def test_a_repeated_class_is_found() -> None:
    sources = {"a.py": "class Image: ...\nclass _Row: ...", "b.py": "class _Row: ...\nclass Image: ..."}

    assert repeated_classes(sources) == {"Image": ["a.py", "b.py"]}


def test_no_module_imports_too_many_others() -> None:
    sources = read_sources("bakehouse/**/*.py")
    modules = module_names(sources) - {"bakehouse"}
    counts = {path: len(imported_modules(path, source, modules)) for path, source in sources.items()}

    assert max(counts.values()) > MAX_IMPORTS // 2
    assert {path: count for path, count in counts.items() if count > MAX_IMPORTS} == {}


def test_imports_of_each_form_are_counted() -> None:
    modules = module_names(["bakehouse/errors.py", "bakehouse/plan/__init__.py", "bakehouse/plan/model.py"])
    source = "import bakehouse.errors\nfrom bakehouse.plan.model import Image, Plan\nfrom json import loads\n"

    assert imported_modules("bakehouse/a.py", source, modules) == {"bakehouse.errors", "bakehouse.plan.model"}
    assert imported_modules("bakehouse/plan/a.py", "from . import model", modules) == {"bakehouse.plan.model"}
    assert imported_modules("bakehouse/a.py", "from bakehouse.plan import VERSION", modules) == {
        "bakehouse.plan"
    }


def test_no_function_has_too_many_parameters() -> None:
    """Functions of `cli/tasks` are exempt: each option of a command is a parameter."""
    sources = read_sources("bakehouse/**/*.py")
    long = {
        path: functions
        for path, source in sources.items()
        if not path.startswith("bakehouse/cli/tasks/")
        and (functions := long_signatures(source, MAX_PARAMETERS))
    }

    assert long == {}


def test_a_function_with_too_many_parameters_is_found() -> None:
    source = "class A:\n    def f(self, a, /, b, *, c): ...\n    def g(self, a, b): ...\n"

    assert long_signatures(source, 2) == ["f: 3"]


_READERS = {
    # What others made, with limits
    "bakehouse/fetch/http_client.py": {"read1"},
    "bakehouse/util/archive_reader.py": {"extractfile", "tarfile.open", "zipfile.ZipFile"},
    "bakehouse/util/aws.py": {"Body"},
    # Entries that archive_reader yields
    "bakehouse/analysis/root_file_system.py": {"extractfile"},
    "bakehouse/engine/image_archive.py": {"extractfile"},
    "bakehouse/engine/tar.py": {"extractfile"},
    # Packages whose unpacked size util/deb.py limits
    "bakehouse/builder/deb_file.py": {"extractfile", "tarfile.open"},
    "bakehouse/builder/root_tree.py": {"extractfile"},
    "bakehouse/registry/registry_image.py": {"extractfile"},
    "bakehouse/util/deb.py": {"tarfile.open"},
    # What the engine and Bakehouse itself wrote
    "bakehouse/builder/base_layer.py": {"extractfile", "tarfile.open"},
    "bakehouse/pipeline/compose.py": {"extractfile", "tarfile.open"},
    "bakehouse/maintain/stub_files.py": {"zipfile.ZipFile"},
    "bakehouse/engine/docker.py": {"json"},
}
"""Modules that read responses and archives, and how."""


_MAYBE_READ = re.compile(r"tarfile|zipfile|\.(?:extract|read1|iter_content|json\b|decompress|read\()")
"""Text of each file that reads one; most files have none, and need no parser."""


def unlimited_reads(source: str) -> set[str]:
    """Return the calls that read a response or an archive without a limit of their own."""
    if not _MAYBE_READ.search(source):
        return set()
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    reads = set()
    for call in calls:
        name, function = ast.unparse(call.func), call.func
        texts = [node.value for node in call.args + [keyword.value for keyword in call.keywords]
                 if isinstance(node, ast.Constant) and isinstance(node.value, str)]  # fmt: skip
        if name in ("tarfile.open", "zipfile.ZipFile") and not any(text.startswith("w") for text in texts):
            reads.add(name)
        elif isinstance(function, ast.Attribute):
            if function.attr in ("extractfile", "extractall", "extract", "read1", "iter_content", "json"):
                reads.add(function.attr)
            elif name.partition(".")[0] in ("zlib", "gzip", "bz2", "lzma") and function.attr == "decompress":
                reads.add(name)
            elif function.attr == "read" and "['Body']" in name:
                reads.add("Body")
    return reads


def test_responses_and_archives_are_read_with_limits() -> None:
    sources = read_sources("bakehouse/**/*.py")
    readers = {path: reads for path, source in sources.items() if (reads := unlimited_reads(source))}

    assert {path: reads for path, reads in readers.items() if "/probes/" not in path} == _READERS


@pytest.mark.parametrize(
    ("source", "reads"),
    [
        ("requests.get(url).json()", {"json"}),
        ("get_object(Key=key)['Body'].read()", {"Body"}),
        ("tarfile.open(path)", {"tarfile.open"}),
        ("tarfile.open(mode='w|', fileobj=file)", set()),
        ("zipfile.ZipFile(path)", {"zipfile.ZipFile"}),
        ("zipfile.ZipFile(path, 'w')", set()),
        ("archive.extractall(path)", {"extractall"}),
        ("zlib.decompress(data)", {"zlib.decompress"}),
        ("response.read1(5)", {"read1"}),
    ],
)
def test_an_unlimited_read_is_found(source: str, reads: set[str]) -> None:
    assert unlimited_reads(source) == reads


_DIRECT = {
    *("read_text", "read_bytes", "write_text", "write_bytes", "touch", "unlink", "rmdir", "mkdir", "chmod"),
    *(
        "open",
        "rename",
        "symlink_to",
        "hardlink_to",
        "glob",
        "rglob",
        "iterdir",
        "scandir",
        "listdir",
        "walk",
    ),
    *("rmtree", "copyfile", "copy2", "copytree", "move", "makedirs", "remove"),
}
"""Methods and functions that open, list or change files by their paths."""
_PATHS_OF_THE_MACHINE = r"bakehouse/(engine|fetch|maintain|probes|registry|sagemaker)/.*"
"""Packages that use the state, the cache and the system of this machine."""
_DIRECT_ACCESS = {
    "bakehouse/builder/base_image.py": "context in a scratch directory",
    "bakehouse/builder/build_inputs.py": "secrets in a private directory",
    "bakehouse/builder/code_copies.py": "copies in the state, which `make_directory` opened",
    "bakehouse/builder/prefetch.py": "copies in the state, which `make_directory` opened",
    "bakehouse/builder/registry_auth.py": "logins in a private directory",
    "bakehouse/builder/verify.py": "checks of Bakehouse",
    "bakehouse/catalog/cache.py": "the cache of the user",
    "bakehouse/catalog/file_modes.py": "the settings of Git, which no commit contains",
    "bakehouse/catalog/git_history.py": "an export in a scratch directory; names of included files",
    "bakehouse/catalog/source_tree.py": "names in directories whose links were checked",
    "bakehouse/cli/doctor.py": "files of the system",
    "bakehouse/cli/main.py": "standard output",
    "bakehouse/cluster/check_keys.py": "names of files in the directories of channels",
    "bakehouse/commands/dockerfile_import/choose.py": "a recipe in a scratch directory",
    "bakehouse/commands/dockerfile_import/translate.py": "names of files next to a Dockerfile",
    "bakehouse/jobs/model_trainer.py": "the SDK's files",
    "bakehouse/layers/composed_image.py": "layers in a private directory",
    "bakehouse/layers/wheel_layout.py": "byte code in a private directory",
    "bakehouse/lock/apt.py": "lists in a scratch directory",
    "bakehouse/lock/base_step.py": "context in a scratch directory",
    "bakehouse/lock/git_requirements.py": "archives in a scratch directory",
    "bakehouse/lock/interpreter.py": "programs in a scratch directory",
    "bakehouse/lock/requirements_locks.py": "names in a directory of wheels",
    "bakehouse/lock/project_locks.py": "names of the members of a workspace of uv",
    "bakehouse/lock/python.py": "inputs of uv in a scratch directory",
    "bakehouse/pipeline/compose.py": "layers in a private directory",
    "bakehouse/pipeline/without_engine.py": "layers in a private directory",
    "bakehouse/plan/dockerfile.py": "names below a directory that `names_in` opened",
    "bakehouse/publish/image_root.py": "layers in a scratch directory",
    "bakehouse/util/archive_reader.py": "members of archives",
    "bakehouse/util/aws.py": "data files of botocore",
    "bakehouse/util/directory_handles.py": "handles themselves",
    "bakehouse/util/files.py": "functions that open handles",
    "bakehouse/util/tempdir.py": "temporary directories",
}
"""Reviewed modules that use paths directly, with what they use."""


def direct_accesses(source: str) -> list[int]:
    """Return the lines that open, list or change files without `bakehouse.util.files`."""
    return sorted(
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and (
            (isinstance(node.func, ast.Name) and node.func.id == "open")
            or (
                isinstance(node.func, ast.Attribute)
                and node.func.attr in _DIRECT
                and not _is_other_method(node.func.attr, node)
            )
        )
    )


def _is_other_method(name: str, call: ast.Call) -> bool:
    """Return whether a call concerns no path: of a client, an archive, a tree of nodes or a list."""
    assert isinstance(call.func, ast.Attribute)
    of = ast.unparse(call.func.value)
    return (
        (name == "open" and re.search("(?i)web|client|archive|tarfile|machine|self$|offer", of) is not None)
        or (name == "walk" and of in ("ast", "record"))
        or (name == "remove" and of != "os")
        or (name == "rename" and of == "self")
    )


def test_files_of_projects_are_opened_in_one_place() -> None:
    """A path of a project may be a link to anywhere; only these functions look."""
    direct = {path for path, source in read_sources("bakehouse/**/*.py").items() if direct_accesses(source)}

    assert {path for path in direct if not re.fullmatch(_PATHS_OF_THE_MACHINE, path)} == {*_DIRECT_ACCESS}


@pytest.mark.parametrize(
    "source",
    ["path.read_text()", "open(path)", "(a / b).open('rb')", "os.remove(path)", "shutil.rmtree(path)"],
)
def test_a_direct_access_is_found(source: str) -> None:
    assert direct_accesses(source) == [1]
