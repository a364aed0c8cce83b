"""What the examples call, in which order and how often, without the frameworks that they import."""

import ast
import re
import runpy
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from bakehouse.catalog.project import HOME

EXAMPLES = HOME / "examples"
GPU_SCRIPTS = sorted(
    path for path in EXAMPLES.glob("*/*.py") if "torch.distributed as dist" in path.read_text()
)
Load = Callable[..., dict[str, Any]]


def calls(path: Path) -> list[str]:
    """Return the calls of a script, in the order of its lines."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    return [ast.unparse(node) for node in sorted(nodes, key=lambda node: node.lineno)]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    """Run a heterogeneous example with stubs of modules."""

    def run(name: str, hosts: dict[str, Any], **modules: Any) -> dict[str, Any]:
        source = (EXAMPLES / "heterogeneous" / name).read_text()
        for node in ast.walk(ast.parse(source)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for module in names:
                parts = module.split(".")
                if parts[0] not in sys.stdlib_module_names:
                    for end in range(1, len(parts) + 1):
                        monkeypatch.setitem(sys.modules, ".".join(parts[:end]), MagicMock())
        monkeypatch.setitem(sys.modules, "hosts", MagicMock(**hosts))
        for module, stub in modules.items():
            monkeypatch.setitem(sys.modules, module, stub)
        monkeypatch.setattr(sys, "argv", [name])
        return runpy.run_path(str(EXAMPLES / "heterogeneous" / name))

    return run


@pytest.mark.parametrize("name", ["fsdp", "smp1", "smp2"])
def test_ranks_create_the_same_model_and_different_examples(name: str) -> None:
    kinds = re.compile(r"torch\.(manual_seed|nn\.Linear|rand)\([^()]*(\(\))?\)")
    steps = [call for call in calls(EXAMPLES / name / "train.py") if kinds.fullmatch(call)]
    layers = [step for step in steps if "Linear" in step]

    rank = "smp.rank()" if name == "smp1" else "rank"
    seed_and_examples = [f"torch.manual_seed({rank})", "torch.rand(256, 8, device=device)"]
    assert steps == ["torch.manual_seed(0)", *layers, *seed_and_examples]


def test_all_ranks_of_a_replica_gather_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """SMP 1 splits a replica over ranks, and `state_dict` hangs unless all of them call it."""
    library, torch = MagicMock(), MagicMock()
    smp = library.modelparallel.torch
    smp.local_rank.return_value = 0
    smp.step.return_value.return_value.reduce_mean.return_value.item.return_value = 0.5
    gather = smp.DistributedModel.return_value.state_dict
    modules = {"": library, ".modelparallel": library.modelparallel, ".modelparallel.torch": smp}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, f"smdistributed{name}", module)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setenv("SM_MODEL_DIR", "model")

    def finish(rank: int, replica: int) -> tuple[int, int]:
        gather.reset_mock()
        torch.save.reset_mock()
        smp.rank.return_value, smp.dp_rank.return_value = rank, replica
        runpy.run_path(str(EXAMPLES / "smp1" / "train.py"))
        return gather.call_count, torch.save.call_count

    assert [finish(0, 0), finish(1, 0), finish(2, 1), finish(3, 1)] == [(1, 1), (1, 0), (0, 0), (0, 0)]


@pytest.mark.parametrize("path", GPU_SCRIPTS, ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_each_rank_selects_its_gpu(path: Path) -> None:
    assert [call for call in calls(path) if call.startswith("torch.cuda.set_device(")]


def test_several_training_hosts_without_horovod_end(load: Load) -> None:
    hosts = {"CURRENT": "algo-1", "DATA": [], "TRAINING": ["algo-1", "algo-2"]}

    with pytest.raises(SystemExit) as error:
        load("train_tensorflow.py", hosts)

    assert error.value.code == "several training hosts need Horovod: enable `mpi` in `distribution`"


def test_a_data_host_of_several_training_hosts_serves(load: Load) -> None:
    serve = MagicMock()
    hosts = {"CURRENT": "algo-1", "DATA": ["algo-1"], "TRAINING": ["algo-2", "algo-3"], "serve": serve}

    load("train_tensorflow.py", hosts)

    serve.assert_called_once_with()


def test_the_ranks_of_a_host_share_its_loader(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loader has a request for each CPU in flight, and each rank that uses it one more."""
    asked: Counter[str] = Counter()

    def channel(address: str, options: object) -> MagicMock:
        def future(numbers: bytes, wait_for_ready: bool) -> MagicMock:
            asked[address] += 1
            ready = MagicMock()
            ready.exception.return_value = None
            ready.add_done_callback.side_effect = lambda callback: callback(ready)
            return ready

        return MagicMock(**{"unary_unary.return_value.future": future})

    hosts = {"CURRENT": "algo-1", "DATA": ["algo-1"], "loader_vcpus.return_value": 0}
    example = load("train_pytorch.py", hosts, grpc=MagicMock(insecure_channel=channel))
    example["dist"].get_world_size.return_value = 16
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    monkeypatch.setitem(example["batches"].__globals__, "torch", MagicMock())
    monkeypatch.setitem(example["batches"].__globals__, "bytearray", MagicMock())
    batches: Iterator[object] = example["batches"]({"localhost": 88.0, "algo-1": 96.0}, count())
    next(batches)

    # The batch that was returned has been replaced
    assert asked == {"localhost:6000": 88 / 8 + 1 + 1, "algo-1:6000": 96 / 16 + 1}


def test_ranks_of_mpi_prepare_batches_without_data_hosts(load: Load) -> None:
    hosts = {"CURRENT": "algo-1", "DATA": []}
    comm = MagicMock(**{"Get_rank.return_value": 1, "Get_size.return_value": 2})
    numpy = MagicMock(**{"split.return_value": (MagicMock(), MagicMock())})
    mpi4py = MagicMock(**{"MPI.COMM_WORLD": comm})

    load("train_mpi.py", hosts, numpy=numpy, mpi4py=mpi4py)

    numpy.random.default_rng.assert_called_once_with(1)
    assert comm.Allreduce.call_count == 200
