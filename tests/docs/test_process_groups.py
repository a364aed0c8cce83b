"""Scripts with torch.distributed end the threads of gloo before Python ends, which they can abort."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(
    path
    for pattern in ("examples/*/*.py", "bakehouse/probes/*.py", "recipes/components/*/smoke.py")
    for path in ROOT.glob(pattern)
    if {"init_process_group", "init_distributed"}
    & set(path.read_text().replace("(", " ").replace(".", " ").split())
)


def calls(source: str) -> list[str]:
    """Return the names of called functions, in the order of the source."""
    nodes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    ordered = sorted(nodes, key=lambda node: (node.lineno, node.col_offset))
    return [ast.unparse(node.func) for node in ordered]


def problem(source: str) -> str:
    """Return why threads of gloo may outlive a script; empty if they do not.

    They end with the last reference to their group. A wrapped model has one, in a cycle that only the garbage
    collector finds.
    """
    names = [name.rpartition(".")[2] for name in calls(source)]
    if "destroy_process_group" not in names:
        return "it does not call destroy_process_group"
    before = names[: len(names) - 1 - names[::-1].index("destroy_process_group")]
    if {"backward", "step"} & set(names) and before[-1:] != ["collect"]:
        return "it trains a model, but does not call gc.collect before destroy_process_group"
    return ""


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_threads_of_gloo_end_before_python(path: Path) -> None:
    assert problem(path.read_text()) == ""


def test_scripts_of_all_kinds_are_tested() -> None:
    names = {str(path.relative_to(ROOT)) for path in SCRIPTS}
    assert names >= {
        "examples/torch-ddp/train.py",
        "examples/deepspeed/train.py",
        "bakehouse/probes/torchrun_allreduce.py",
        "recipes/components/megatron-core/smoke.py",
    }


@pytest.mark.parametrize(
    ("end", "text"),
    [
        ("", "it does not call destroy_process_group"),
        (
            "dist.destroy_process_group()",
            "it trains a model, but does not call gc.collect before destroy_process_group",
        ),
        ("gc.collect()\ndist.destroy_process_group()", ""),
    ],
)
def test_a_script_that_keeps_the_threads(end: str, text: str) -> None:
    assert problem(f"dist.init_process_group()\nloss.backward()\n{end}\n") == text
