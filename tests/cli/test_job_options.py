"""Arguments of `bake run` as a job, and errors for those that make none."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from bakehouse.cli import job_options, main
from bakehouse.cluster.job import Group
from bakehouse.errors import Diagnostic, UsageError
from tests.support.errors import raised

HERE = str(Path(__file__).parent)

GROUP_HINT = "write `--group data=ml.c5.18xlarge:2`, with a name of at most 64 characters"


def test_hyperparameters_are_json_where_they_can_be() -> None:
    assert job_options.hyperparameters(["lr=0.1", "name=x y", "deep=[1, 2]", "equal=a=b"]) == {
        "lr": 0.1,
        "name": "x y",
        "deep": [1, 2],
        "equal": "a=b",
    }


def test_groups_have_the_names_that_sagemaker_allows() -> None:
    assert job_options.named_groups(["data_group=ml.c5.xlarge", "Gruppe Süd=ml.c5.xlarge:2"]) == (
        Group("data_group", "ml.c5.xlarge", 1),
        Group("Gruppe Süd", "ml.c5.xlarge", 2),
    )
    name = "données: A=1, @home"
    assert job_options.named_groups([f"{name}=ml.c5.xlarge:2"]) == (Group(name, "ml.c5.xlarge", 2),)


def test_a_name_is_given_once() -> None:
    channels = ["train=s3://a/b", "train=s3://a/c"]
    readers: dict[str, Callable[[Sequence[str]], object]] = {
        "--hyperparameter": job_options.hyperparameters,
        "--channel": partial(job_options.pairs, option="--channel"),
    }
    for option, read in readers.items():
        assert raised(UsageError, read, channels).diagnostics == (
            Diagnostic(f"`{option}` gives `train` twice", hint="remove one of them"),
        )


def test_a_distribution_is_json_or_a_file_that_holds_it(tmp_path: Path) -> None:
    text = '{"mpi": {"enabled": true}}'
    (tmp_path / "mpi.json").write_text(text)

    assert job_options.read_distribution(text) == job_options.read_distribution(str(tmp_path / "mpi.json"))
    assert job_options.read_distribution("") is None
    assert job_options.read_distribution("{}") == {}
    assert job_options.read_distribution("torch_distributed") == {"torch_distributed": {"enabled": True}}


def test_a_command_is_parted_as_a_shell_parts_it() -> None:
    assert job_options.command("python -c 'import sys'", "") == ("python", "-c", "import sys")


def test_what_dies_and_when() -> None:
    assert job_options.kills(["algo-2@10s", "algo-1@0.5", "algo-3@/step 1/2/"]) == {
        "algo-2": 10.0,
        "algo-1": 0.5,
        "algo-3": "step 1/2",
    }


@pytest.mark.parametrize(
    ("call", "message", "hint"),
    [
        (lambda: job_options.named_groups(["data"]), "invalid group `--group data`", GROUP_HINT),
        (lambda: job_options.named_groups(["a=ml.x:0"]), "invalid group `--group a=ml.x:0`", GROUP_HINT),
        (
            lambda: job_options.named_groups(["a=ml.x", "a=ml.y"]),
            "two groups have the same name",
            "SageMaker requires unique names",
        ),
        (
            lambda: job_options.named_groups([f"g{n}=ml.x" for n in range(6)]),
            "6 groups",
            "SageMaker allows at most 5",
        ),
        (
            lambda: job_options.hyperparameters(["lr"]),
            "`--hyperparameter lr` has no `=`",
            "write `--hyperparameter name=value`",
        ),
        (
            lambda: job_options.read_distribution("no/such.json"),
            "cannot read `no/such.json` as a distribution",
            "use a launcher such as `torch_distributed`, JSON or a JSON file",
        ),
        (
            lambda: job_options.read_distribution("{'mpi': 1}"),
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
    ],
)
def test_invalid_job_options_are_reported(call: object, message: str, hint: str) -> None:
    assert callable(call)
    [diagnostic] = raised(UsageError, call).diagnostics
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
