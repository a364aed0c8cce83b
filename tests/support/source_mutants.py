"""Mutation testing: a sample of small changes to the code, each run against the tests that cover its line.

    python3 -m venv DIR && DIR/bin/pip install cosmic-ray coverage
    DIR/bin/python tests/support/source_mutants.py COVERAGE WORKTREE...

COVERAGE is a data file of coverage.py that pytest-cov wrote with `--cov-context=test`. WORKTREE is a checkout
with a `.venv`, which this script changes and restores; each one takes a process. The results are
`tests/mutants.json`. Write there why a mutant survives, in the field `why`.

The operators are those of cosmic-ray. The sample excludes annotations, decorators, `strict=` and lines
that no test covers.
"""

import ast
import json
import os
import random
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any, NamedTuple

from cosmic_ray.ast import ast_nodes, get_ast  # type: ignore[import-not-found]
from cosmic_ray.mutating import mutate_code  # type: ignore[import-not-found]
from cosmic_ray.plugins import get_operator, operator_names  # type: ignore[import-not-found]
from coverage import CoverageData  # type: ignore[import-not-found]

PACKAGES = ("resolve", "plan", "jobs", "ledger", "trust")
SEED, COUNT = 49, 150
FIRST, MOST = 40, 400
"""Tests of the first run of a mutant, and of all runs together; the nearest come first."""
SECONDS = 300

# Equality and identity are the same for None and for members of enumerations; mypy holds most others.
_SAME = re.compile(r"_(Is_Eq|IsNot_NotEq|Eq_Is|NotEq_IsNot)$|RemoveDecorator")


class Mutant(NamedTuple):
    """A change to one place of a module."""

    module: str
    line: int
    operator: str
    occurrence: int
    tests: tuple[str, ...]


def excluded(source: str) -> set[tuple[int, int]]:
    """Return the lines and columns of annotations, decorators and `strict=`."""
    tree, nodes = ast.parse(source), list[ast.expr | None]()
    for node in ast.walk(tree):
        nodes.extend(getattr(node, "decorator_list", []))
        nodes.extend([getattr(node, "annotation", None), getattr(node, "returns", None)])
        if isinstance(node, ast.keyword) and node.arg == "strict":
            nodes.append(node.value)
    places = set()
    for root in filter(None, nodes):
        last = root.end_lineno or root.lineno
        for line in range(root.lineno, last + 1):
            start = root.col_offset if line == root.lineno else 0
            end = root.end_col_offset if line == last else 200
            places |= {(line, column) for column in range(start, end or 200)}
    return places


def ordered(module: str, contexts: tuple[str, ...], every: dict[str, list[str]]) -> tuple[str, ...]:
    """Return the tests of contexts, the nearest first, and in turn over the test functions.

    A fixture of a whole test module is a part of the context of its first test alone: all tests of the module
    may depend on it.
    """
    tests = {context.rsplit("|", 1)[0] for context in contexts}
    shared = {context.split("::")[0] for context in contexts if context.endswith("|setup")}
    more = {test for path in shared for test in every[path]} - tests
    package, name = Path(module).parent.name, Path(module).stem
    turns: dict[str, int] = defaultdict(int)
    keys = {}
    for test in [*sorted(tests), *sorted(more)]:
        function, path = test.split("[")[0], Path(test.split("::")[0])
        turns[function] += 1
        distance = 0 if path.stem == f"test_{name}" else 1 if path.parent.name == package else 2
        keys[test] = (test in more, turns[function] > FIRST // 4, distance, turns[function], test)
    return tuple(sorted(keys, key=lambda test: keys[test]))[:MOST]


def mutants(root: Path, data: CoverageData) -> Iterator[tuple[str, str, list[Mutant]]]:
    """Yield the mutants of each module and kind of operator, with the contexts of their lines."""
    measured = {re.sub(r".*/(bakehouse/)", r"\1", path): path for path in data.measured_files()}
    for path in sorted(path for package in PACKAGES for path in root.glob(f"bakehouse/{package}/*.py")):
        module, source = str(path.relative_to(root)), path.read_text()
        contexts = data.contexts_by_lineno(measured[module])
        anywhere = tuple(sorted({name for names in contexts.values() for name in names if name}))
        skipped, nodes = excluded(source), [*ast_nodes(get_ast(source))]
        named = {line: tuple(sorted(filter(None, names))) or anywhere for line, names in contexts.items()}
        kinds = defaultdict(list)
        for operator in operator_names():
            if _SAME.search(operator) or get_operator(operator).arguments():
                continue
            places = (place for node in nodes for place in get_operator(operator)().mutation_positions(node))
            for occurrence, ((line, column), _) in enumerate(places):
                # What an import runs is in no test's context: all tests of the module depend on it.
                if named.get(line) and (line, column) not in skipped:
                    kind = re.sub(r"^core/|_.*", "", operator)
                    kinds[kind].append(Mutant(module, line, operator, occurrence, named[line]))
        for kind, members in kinds.items():
            yield module.split("/")[1], kind, members


def sample(root: Path, data: CoverageData) -> list[Mutant]:
    """Return mutants in proportion to the lines of each package, in turn over the kinds of operators."""
    pools: dict[str, dict[str, list[Mutant]]] = {package: defaultdict(list) for package in PACKAGES}
    every = defaultdict(list)
    for context in sorted(data.measured_contexts()):
        if context.endswith("|run"):
            every[context.split("::")[0]].append(context.removesuffix("|run"))
    for package, kind, members in mutants(root, data):
        pools[package][kind].extend(members)
    lines = {
        name: sum(path.read_bytes().count(b"\n") for path in root.glob(f"bakehouse/{name}/*.py"))
        for name in PACKAGES
    }
    chance, chosen = random.Random(SEED), list[Mutant]()
    for package, kinds in pools.items():
        wanted, taken = round(COUNT * lines[package] / sum(lines.values())), set[tuple[str, int]]()
        while wanted:
            for kind in sorted(kinds):
                free = [mutant for mutant in kinds[kind] if mutant[:2] not in taken]
                if free and wanted:
                    mutant = chance.choice(free)
                    taken.add(mutant[:2])
                    tests = ordered(mutant.module, mutant.tests, every)
                    chosen.append(mutant._replace(tests=tests))
                    wanted -= 1
    return chosen


def run(root: Path, tests: tuple[str, ...]) -> tuple[str, str, str]:
    """Return the verdict of tests, the one that failed, and its error."""
    command = [f"{root}/.venv/bin/python", "-m", "pytest", "-xq", "-p", "no:cacheprovider", "--tb=no", "-rfE"]
    environment = {**os.environ, "COLUMNS": "400", "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTHONPATH", None)
    try:
        result = subprocess.run(
            ["nice", *command, "--timeout=60", *tests],
            cwd=root,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        return "timeout", "", f"{SECONDS} s"
    if result.returncode == 0:
        return "survived", "", ""
    failed = re.search(r"^(FAILED|ERROR) (.*)$", result.stdout, re.MULTILINE)
    summary = failed[2] if failed else (result.stderr or result.stdout)[-200:]
    test = next((test for test in tests if summary.startswith(test)), summary.split(" - ")[0])
    error = summary.removeprefix(test).removeprefix(" - ")
    is_timeout = error.startswith("Failed: Timeout")
    verdict = "killed" if result.returncode == 1 else "not importable"
    return "timeout" if is_timeout else verdict, test, error.split(":")[0][:80]


def judge(mutant: Mutant, roots: "Queue[Path]") -> dict[str, Any]:
    """Return the result of a mutant: first of the nearest tests, then of the rest."""
    root = roots.get()
    path = root / mutant.module
    source, times = path.read_text(), path.stat()
    changed = mutate_code(source, get_operator(mutant.operator)(), mutant.occurrence)
    before, after = source.splitlines(), changed.splitlines()
    line = next(number for number, (old, new) in enumerate(zip(before, after)) if old != new)  # noqa: B905
    parents = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
        and node.lineno <= line + 1 <= (node.end_lineno or 0)
    ]
    try:
        path.write_text(changed)
        verdict, test, error = run(root, mutant.tests[:FIRST])
        if verdict == "survived" and mutant.tests[FIRST:]:
            verdict, test, error = run(root, mutant.tests[FIRST:])
    finally:
        path.write_text(source)
        os.utime(path, (times.st_atime, times.st_mtime))
        roots.put(root)
    result = {
        "module": mutant.module.removeprefix("bakehouse/"),
        "function": ".".join(node.name for node in parents),
        "line": before[line].strip(),
        "mutant": after[line].strip(),
        "operator": mutant.operator.removeprefix("core/"),
        "verdict": verdict,
        "test": test,
        "error": error,
        "tests": len(mutant.tests),
    }
    print(json.dumps(result), flush=True)
    return result


def main(coverage: str, *worktrees: str) -> None:
    """Run the sample and write the results, one mutant on each line."""
    data, roots = CoverageData(coverage), Queue[Path]()
    data.read()
    for worktree in worktrees:
        roots.put(Path(worktree).resolve())
    chosen = sample(Path(worktrees[0]).resolve(), data)
    with ThreadPoolExecutor(len(worktrees)) as pool:
        results = [*pool.map(lambda mutant: judge(mutant, roots), chosen)]
    lines = ",\n".join(json.dumps(result) for result in results)
    Path(__file__).parents[1].joinpath("mutants.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
