"""Arguments of `bake run` as a job, and errors for those that make none."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from bakehouse.cli import job_options, main
from bakehouse.cluster.job import Group, NetworkPartition
from bakehouse.errors import Diagnostic, UsageError

HERE = str(Path(__file__).parent)

GROUP_HINT = (
    "write `--group data=ml.c5.18xlarge:2`, with a name of at most 64 characters without `=`, `,` or `@`"
)


def test_hosts_of_one_type() -> None:
    groups = job_options.cluster([], 2, "ml.p4d.24xlarge", [], 0)

    assert groups == (Group("homogeneousCluster", "ml.p4d.24xlarge", 2),)


def test_groups_of_several_types_with_their_share_of_the_machine() -> None:
    groups = ["data=ml.c5.18xlarge:2", "dnn=ml.p4d.24xlarge"]

    assert job_options.cluster(groups, 0, "", ["data=1.5"], 1) == (
        Group("data", "ml.c5.18xlarge", 2, 1.5, 1),
        Group("dnn", "ml.p4d.24xlarge", 1, None, 1),
    )


def test_hyperparameters_are_json_where_they_can_be() -> None:
    assert job_options.hyperparameters(["lr=0.1", "name=x y", "deep=[1, 2]", "equal=a=b"]) == {
        "lr": 0.1,
        "name": "x y",
        "deep": [1, 2],
        "equal": "a=b",
    }


def test_channels_of_instance_groups() -> None:
    assert job_options.channel_groups(["training", "test"], ["training=train,data"]) == {
        "training": ("train", "data"),
        "test": (),
    }
    with pytest.raises(UsageError) as caught:
        job_options.channel_groups(["training"], ["trainig=train"])
    assert caught.value.diagnostics == (
        Diagnostic(
            "`--input-group` names the channel `trainig`, which has no `--input`",
            hint="did you mean `training`?",
        ),
    )


def test_groups_have_the_names_that_sagemaker_allows() -> None:
    assert job_options.named_groups(["data_group=ml.c5.xlarge", "Gruppe Süd=ml.c5.xlarge:2"]) == (
        Group("data_group", "ml.c5.xlarge", 1),
        Group("Gruppe Süd", "ml.c5.xlarge", 2),
    )
    [partition] = job_options.partitions(["data_group,algo-3@10s"])
    assert (partition.first, partition.second) == ("data_group", "algo-3")


def test_a_name_is_given_once() -> None:
    channels = ["train=s3://a/b", "train=s3://a/c"]
    readers: dict[str, Callable[[Sequence[str]], object]] = {
        "--input": partial(job_options.pairs, option="--input"),
        "--hyperparameter": job_options.hyperparameters,
        "--channel": job_options.channels,
    }
    for option, read in readers.items():
        with pytest.raises(UsageError) as caught:
            read(channels)
        assert caught.value.diagnostics == (
            Diagnostic(f"`{option}` gives `train` twice", hint="remove one of them"),
        )


def test_a_distribution_is_json_or_a_file_that_holds_it(tmp_path: Path) -> None:
    text = '{"mpi": {"enabled": true}}'
    (tmp_path / "mpi.json").write_text(text)

    assert job_options.distribution(text) == job_options.distribution(str(tmp_path / "mpi.json"))
    assert job_options.distribution("") is None
    assert job_options.distribution("{}") == {}
    assert job_options.distribution("torch_distributed") == {"torch_distributed": {"enabled": True}}


def test_code_is_in_a_directory_or_in_the_image(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")

    assert job_options.code(str(tmp_path), "train.py") == tmp_path
    assert job_options.code("", "train.py") is None


def test_code_that_a_command_starts_needs_no_entry_point(tmp_path: Path) -> None:
    assert job_options.code(str(tmp_path), "", "torchrun /opt/ml/code/train.py") == tmp_path


def test_a_command_is_parted_as_a_shell_parts_it() -> None:
    assert job_options.command("python -c 'import sys'", "") == ("python", "-c", "import sys")


def test_the_sdk_is_in_a_directory_or_in_a_virtual_environment(tmp_path: Path) -> None:
    packages = tmp_path / "venv/lib/python3.11/site-packages"
    (packages / "sagemaker").mkdir(parents=True)

    assert job_options.sdk(str(tmp_path / "venv")) == job_options.sdk(str(packages)) == packages
    assert job_options.sdk("") is None


def test_channels_are_directories(tmp_path: Path) -> None:
    assert job_options.channels([f"training={tmp_path}"]) == {"training": str(tmp_path)}


def test_what_dies_and_when() -> None:
    assert job_options.kills(["algo-2@10s", "algo-1@0.5", "algo-3@/step 1/2/"]) == {
        "algo-2": 10.0,
        "algo-1": 0.5,
        "algo-3": "step 1/2",
    }


def test_what_is_cut_off_from_what_and_when() -> None:
    assert job_options.partitions(["data,dnn@10s", "algo-1,algo-2@0.5"]) == (
        NetworkPartition("data", "dnn", 10.0),
        NetworkPartition("algo-1", "algo-2", 0.5),
    )


@pytest.mark.parametrize(("text", "size"), [("", None), ("512m", 512 * 2**20), ("2G", 2 * 2**30)])
def test_sizes(text: str, size: int | None) -> None:
    assert job_options.size(text, "--memory") == size


@pytest.mark.parametrize(
    ("call", "message", "hint"),
    [
        (
            lambda: job_options.cluster(["a=ml.x"], 2, "", [], 0),
            "`--group` cannot be combined with `--hosts` or `--instance-type`",
            "give each group a type and a count: `--group data=ml.c5.18xlarge:2`",
        ),
        (
            lambda: job_options.cluster(["data"], 0, "", [], 0),
            "invalid group `--group data`",
            GROUP_HINT,
        ),
        (
            lambda: job_options.cluster(["a=ml.x:0"], 0, "", [], 0),
            "invalid group `--group a=ml.x:0`",
            GROUP_HINT,
        ),
        (
            lambda: job_options.cluster(["a=ml.x", "a=ml.y"], 0, "", [], 0),
            "two groups have the same name",
            "SageMaker requires unique names",
        ),
        (
            lambda: job_options.cluster([f"g{n}=ml.x" for n in range(6)], 0, "", [], 0),
            "6 groups",
            "SageMaker allows at most 5",
        ),
        (
            lambda: job_options.cluster([], 65, "", [], 0),
            "more than 64 hosts",
            "use fewer; all hosts share this machine",
        ),
        (
            lambda: job_options.cluster(["a=ml.x"], 0, "", ["b=1"], 0),
            "`--cpus` names unknown group `b`",
            "the groups are a",
        ),
        (
            lambda: job_options.cluster(["a=ml.x"], 0, "", ["a=many"], 0),
            "invalid number `many` in `--cpus`",
            "a number of cores above 0, such as `data=1.5`",
        ),
        (
            lambda: job_options.hyperparameters(["lr"]),
            "`--hyperparameter lr` has no `=`",
            "write `--hyperparameter name=value`",
        ),
        (
            lambda: job_options.code("no/such", "train.py"),
            "directory `no/such` does not exist",
            "`--source-dir` is the directory that contains the entry point",
        ),
        (
            lambda: job_options.code(HERE, ""),
            "`--source-dir` needs `--entry-point`",
            "such as `--entry-point train.py`",
        ),
        (
            lambda: job_options.code(HERE, "trian.py"),
            f"`{HERE}` contains no `trian.py`",
            "`--entry-point` is a path relative to `--source-dir`",
        ),
        (
            lambda: job_options.channels([f"../../model={HERE}"]),
            "`../../model` is not a valid channel name",
            "use at most 64 letters, digits and `._-`",
        ),
        (
            lambda: job_options.channels(["training=no/such"]),
            "directory `no/such` of channel `training` does not exist",
            "`--channel training=data` copies the directory `data`",
        ),
        (
            lambda: job_options.distribution("no/such.json"),
            "cannot read `no/such.json` as a distribution",
            "use a launcher such as `torch_distributed`, JSON or a JSON file",
        ),
        (
            lambda: job_options.distribution("{'mpi': 1}"),
            "`--distribution` is not valid JSON: Expecting property name enclosed in double quotes:"
            " line 1 column 2 (char 1)",
            "keys and strings need double quotes",
        ),
        (
            lambda: job_options.kills(["algo-2"]),
            "`--kill algo-2` does not name a host and a time",
            "write `--kill algo-2@10s`, or `--kill 'algo-2@/epoch 3/'` for a text in the log",
        ),
        (
            lambda: job_options.command("torchrun train.py", "train.py"),
            "`--command` cannot be combined with `--entry-point`",
            "name the script in the command: /opt/ml/code/…",
        ),
        (
            lambda: job_options.command("echo 'a", ""),
            "`--command` cannot be split into words: No closing quotation",
            "quote it as in a shell",
        ),
        (
            lambda: job_options.sdk("no/such"),
            "`--sdk no/such` contains no SageMaker SDK",
            "run `pip install --target sdk sagemaker-train`",
        ),
        (
            lambda: job_options.partitions(["data@10s"]),
            "`--partition data@10s` does not name two groups and a time",
            "write `--partition data,dnn@10s`",
        ),
        (
            lambda: job_options.size("much", "--memory"),
            "invalid size `--memory much`",
            "such as `512m` or `2g`",
        ),
    ],
)
def test_invalid_job_options_are_reported(call: object, message: str, hint: str) -> None:
    assert callable(call)
    with pytest.raises(UsageError) as caught:
        call()

    [diagnostic] = caught.value.diagnostics
    assert (diagnostic.message, diagnostic.hint) == (message, hint)


def test_a_run_sends_no_secrets_and_needs_its_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The directory is examined before anything is built."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[tool.bakehouse]\n")
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").touch()
    (tmp_path / "src/.netrc").write_text("machine a login b password c\n")
    run = ["run", "pytorch-cpu", "--source-dir", "src", "--entry-point", "train.py"]

    assert main.run(run) == UsageError.exit_code
    assert capsys.readouterr().err == (
        "error: `.netrc` contains credentials\n"
        "  --> src/.netrc:1:1\n\n"
        "hint: remove `.netrc`, or name it in `.dockerignore`; "
        "if it is harmless, end the line with `# gitleaks:allow`\n"
    )
    (tmp_path / ".dockerignore").write_text("src/.netrc\nsrc/*.py\n")
    assert main.run(run) == UsageError.exit_code
    assert capsys.readouterr().err == (
        "error: `train.py` is not sent with the job: .dockerignore:2 src/*.py\n\n"
        "hint: change that line, or add an exception for `train.py` below it\n"
    )
