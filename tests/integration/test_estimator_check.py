"""Settings that are refused before a job is sent, compared with the real SDKs."""

import itertools
import json
import os
import subprocess
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from botocore.validate import ParamValidator  # type: ignore[import-untyped]

from bakehouse.catalog.catalog import load_catalog
from bakehouse.catalog.instance_types import instances
from bakehouse.catalog.project import HOME
from bakehouse.jobs import rules
from bakehouse.jobs.api_model import botocore_shape
from bakehouse.jobs.model_trainer import variable_findings
from bakehouse.jobs.rules import RuleViolation
from bakehouse.jobs.validate import validate
from tests.integration.sagemaker_sdk import ROLE, V2, V3, Aws, installed
from tests.support.broken_requests import valid_request
from tests.support.data import text_of
from tests.support.documented_conditions import CONDITIONS, said
from tests.support.launch_cases import (
    IMAGES,
    RARE,
    RARE_TRAINERS,
    SCRIPTS,
    Case,
    estimators,
    hugging_faces,
    trainers,
)

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

ESTIMATORS = (*RARE, *estimators(500), *hugging_faces(150))
TRAINERS = (*RARE_TRAINERS, *trainers(120))
_EACH, _VALID = 2, 30
"""Daily jobs that break a rule with one class of the SDK, and that break none."""

WITHOUT_AWS = text_of(__file__, "without_aws")
ASK_V2 = (
    WITHOUT_AWS
    + """
import json, logging
import sagemaker
from sagemaker.estimator import Estimator
from sagemaker.instance_group import InstanceGroup
from sagemaker.inputs import TrainingInput
from sagemaker.job import _Job
from sagemaker.local import LocalSession
from sagemaker.telemetry import telemetry_logging
from sagemaker import huggingface, pytorch, tensorflow

logging.disable(logging.CRITICAL)
told = json.load(open("cases.json"))
session = sagemaker.Session(boto3.DEFAULT_SESSION)
# They would take half of the time.
sagemaker.utils._botocore_resolver = functools.cache(sagemaker.utils._botocore_resolver)
telemetry_logging._send_telemetry_request = lambda *told, **more: None
answers = []
for case in told["cases"]:
    groups = [InstanceGroup(*group) for group in case["groups"]]
    job = {"instance_groups": groups}
    if groups[0].instance_group_name == "":
        job = {"instance_type": groups[0].instance_type, "instance_count": groups[0].instance_count}
    elif case["extra_instance_type"]:
        job |= {"instance_type": case["extra_instance_type"], "instance_count": 1}
    distribution = case["distribution"] or None
    if isinstance(distribution, dict) and "instance_groups" in distribution:
        by_name = {group.instance_group_name: group for group in groups}
        other = InstanceGroup("other", "ml.c5.xlarge", 1)
        wanted = distribution["instance_groups"]
        distribution["instance_groups"] = [by_name.get(one, other) for one in wanted]
    names = ("entry_point", "source_dir", "framework_version", "py_version", "hyperparameters", "environment")
    for name in names:
        if case[name]:
            job[name] = case[name]
    if case["image"]:
        job["image_uri"] = told["images"][case["image"]]
    if case["keep_alive"] is not None:
        job["keep_alive_period_in_seconds"] = case["keep_alive"]
    job |= case["arguments"] or {}
    kinds = {"PyTorch": pytorch.PyTorch, "TensorFlow": tensorflow.TensorFlow, "Estimator": Estimator}
    kinds["HuggingFace"] = huggingface.HuggingFace
    kind = kinds[case["sender"]]
    if case["sender"] == "TensorFlow":
        job["model_dir"] = False
    if case["sender"] == "HuggingFace":
        name = "tensorflow_version" if case["has_tensorflow_version"] else "pytorch_version"
        if version := job.pop("framework_version", None):
            job[name] = version
        if case["transformers_version"]:
            job["transformers_version"] = case["transformers_version"]
    if case["compiler"] is not None:
        modules = {"TensorFlow": tensorflow, "HuggingFace": huggingface}
        module = modules.get(case["sender"], pytorch)
        job["compiler_config"] = module.TrainingCompilerConfig(enabled=case["compiler"])
    local = any(group.instance_type.startswith("local") for group in groups)
    job["sagemaker_session"] = session
    if local and not case["groups"][0][0]:
        job["sagemaker_session"] = LocalSession(boto3.DEFAULT_SESSION)
    if case["sender"] == "Estimator":
        job = {key: value for key, value in job.items() if key not in ("framework_version", "py_version")}
    try:
        estimator = kind(role=told["role"], distribution=distribution, disable_profiler=True, **job)
        if case["image"] and not local:
            inputs = {
                key: TrainingInput("s3://data/", instance_groups=value or None)
                for key, value in (case["channels"] or {}).items()
            }
            estimator.fit(inputs or None, wait=False)
        else:
            # AWS's images are looked up elsewhere, and local mode would start containers.
            estimator._prepare_for_training("case")
            estimator.hyperparameters()
            cluster = (estimator.instance_count, estimator.instance_type, estimator.instance_groups)
            _Job._prepare_resource_config(*cluster, 30, None, None, None)
        answers.append("")
    except Exception as error:
        answers.append(f"{type(error).__name__}: {error}")
json.dump(answers, open("answers.json", "w"))
"""
)
ASK_V3 = (
    WITHOUT_AWS
    + """
import json, logging
from sagemaker.core.helper import session_helper
from sagemaker.core.shapes import InstanceGroup
from sagemaker.core.training.configs import Compute, SourceCode
from sagemaker.train.distributed import MPI, SMP, Torchrun
from sagemaker.train.model_trainer import ModelTrainer

logging.disable(logging.CRITICAL)
session_helper.botocore_resolver = functools.cache(session_helper.botocore_resolver)
told = json.load(open("cases.json"))
answers = []
for case in told["cases"]:
    try:
        distributed = None
        for name, values in (case["distribution"] or {}).items():
            if isinstance(values.get("smp"), dict):
                values["smp"] = SMP(**values["smp"])
            distributed = {"Torchrun": Torchrun, "MPI": MPI}[name](**values)
        groups = [
            InstanceGroup(instance_group_name=group[0], instance_type=group[1], instance_count=group[2])
            for group in case["groups"]
        ]
        compute = {"instance_groups": groups}
        if groups[0].instance_group_name == "":
            compute = {"instance_type": groups[0].instance_type, "instance_count": groups[0].instance_count}
        elif case["extra_instance_type"]:
            compute |= {"instance_type": case["extra_instance_type"], "instance_count": 1}
        if case["keep_alive"] is not None:
            compute["keep_alive_period_in_seconds"] = case["keep_alive"]
        names = {"source_dir": "source_dir", "entry_point": "entry_script"}
        names |= {"requirements": "requirements", "command": "command"}
        source = {theirs: case[ours] for ours, theirs in names.items() if case[ours]}
        trainer = ModelTrainer(
            training_image=told["images"].get(case["image"]), role=told["role"], base_job_name="case",
            compute=Compute(**compute), distributed=distributed, environment=case["environment"] or {},
            hyperparameters=case["hyperparameters"] or {}, source_code=SourceCode(**source),
        )
        trainer.train(wait=False, logs=False)
        answers.append("")
    except Exception as error:
        answers.append(f"{type(error).__name__}: {error}")
json.dump(answers, open("answers.json", "w"))
"""
)


Judged = tuple[Case, tuple[RuleViolation, ...]]
"""A job, and the rules that it breaks."""


def daily(ours: Sequence[Judged]) -> list[Judged]:
    """Return jobs that together break each rule with each class of the SDK, and some that break none."""
    seen: Counter[str] = Counter()
    chosen = []
    for case, findings in ours:
        kinds = {f"{case.sender} {each.rule.name} {len(findings) == 1}" for each in findings} or {""}
        if any(seen[kind] < (_EACH if kind else _VALID) for kind in kinds):
            chosen.append((case, findings))
        seen.update(kinds)
    return chosen


class Compared:
    """Each job with what the SDK says of it, and we."""

    def __init__(
        self, aws: Aws, sdk: Path, script: str, cases: tuple[Case, ...], directory: Path, is_daily: bool
    ) -> None:
        (directory / "code").mkdir()
        for name in SCRIPTS:
            (directory / name).write_text("")
            (directory / "code" / name).write_text("")
        (directory / "code" / "train.txt").write_text("")
        (directory / "code" / "requirements.txt").write_text("")
        types = instances(load_catalog([HOME / "recipes"]))
        judged = [(case, validate(case.request(types, directory), IMAGES.get(case.image))) for case in cases]
        ours = [(case, tuple(each for each in findings if each.is_error)) for case, findings in judged]
        ours = daily(ours) if is_daily else ours
        content = {
            "cases": [asdict(case) for case, _ in ours],
            "images": {name: image.uri for name, image in IMAGES.items()},
            "role": ROLE,
        }
        (directory / "cases.json").write_text(json.dumps(content))
        aws.run(installed(sdk), ["-c", script], directory)
        document = json.loads((directory / "answers.json").read_text())
        self.cases = [(*case, answer) for case, answer in zip(ours, document, strict=True)]

    def ours_alone(self) -> dict[str, Case]:
        """The rules that refuse what the SDK takes, each with a job that shows it."""
        return {
            finding.rule.name: case
            for case, findings, answer in self.cases
            if not answer
            for finding in findings
        }


@pytest.fixture(scope="module", params=["daily", pytest.param("all", marks=pytest.mark.release)])
def compared(
    request: pytest.FixtureRequest, aws: Aws, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Compared]:
    """Compare both versions, in parallel."""
    is_daily = request.param == "daily"
    versions = {"version_2": (V2, ASK_V2, ESTIMATORS), "version_3": (V3, ASK_V3, TRAINERS)}
    with ThreadPoolExecutor() as pool:
        running = {
            name: pool.submit(Compared, aws, *arguments, tmp_path_factory.mktemp(name), is_daily)
            for name, arguments in versions.items()
        }
        return {name: future.result() for name, future in running.items()}


VERSIONS = pytest.mark.parametrize("version", ["version_2", "version_3"])


@VERSIONS
def test_what_the_sdk_refuses_is_refused(version: str, compared: dict[str, Compared]) -> None:
    missed = [(answer, case) for case, findings, answer in compared[version].cases if answer and not findings]
    assert missed == []


@VERSIONS
def test_what_the_sdk_takes_is_refused_for_a_reason_beyond_it(
    version: str, compared: dict[str, Compared]
) -> None:
    unsaid: list[Any] = [
        ([finding.rule.name for finding in findings if not finding.rule.beyond], findings, case)
        for case, findings, answer in compared[version].cases
        if not answer and any(not finding.rule.beyond for finding in findings)
    ]
    assert unsaid == []


@VERSIONS
def test_enough_settings_are_taken_and_refused(version: str, compared: dict[str, Compared]) -> None:
    """A comparison of refusals alone would pass where everything is refused."""
    cases = compared[version].cases
    refused = sum(bool(answer) for _, _, answer in cases)
    taken_by_both = sum(not answer and not findings for _, findings, answer in cases)
    print(f"{version}: {len(cases)} settings, {refused} refused by the SDK, {taken_by_both} taken by both")
    assert refused > len(cases) / 5
    assert taken_by_both > len(cases) / 12


def test_every_rule_beyond_the_sdk_is_met(compared: dict[str, Compared]) -> None:
    """Each rule in docs/reference/job-checks.md rejects a job that the SDK accepts."""
    met = {name: case for comparison in compared.values() for name, case in comparison.ours_alone().items()}
    listed = {rule.name for rule in rules.ALL if rule.beyond and rule.is_error}
    assert {*met, *REQUESTS} == listed
    assert not met.keys() & REQUESTS.keys()


REQUESTS: dict[str, dict[str, Any]] = {
    "algorithm-or-image": {
        "AlgorithmSpecification": {"TrainingImage": "a", "AlgorithmName": "b", "TrainingInputMode": "File"}
    },
    "instance-preferences": {
        "ResourceConfig": {
            "InstanceType": "ml.c5.xlarge",
            "InstanceCount": 1,
            "VolumeSizeInGB": 1,
            "InstancePreferences": [{"InstanceType": "ml.c5.xlarge", "InstanceCount": 1}],
        }
    },
    "read-only": {
        "ResourceConfig": {
            "InstanceType": "ml.c5.xlarge",
            "InstanceCount": 1,
            "VolumeSizeInGB": 1,
            "SelectedInstanceCount": 1,
        }
    },
}
"""Requests of the API for the rules that no class of an SDK can break."""


_DOCUMENTED = (
    *("augmented-manifest", "compressed-channel", "documented-values", "volume-key", "unique-names"),
    "accept-eula",
)
REQUESTS |= {rule: content for rule, content, _, _ in CONDITIONS.values() if rule in _DOCUMENTED}


@pytest.mark.parametrize("rule", REQUESTS)
def test_a_rule_of_requests_rejects_one_that_botocore_accepts(rule: str) -> None:
    content = {**valid_request(), **REQUESTS[rule]}
    assert not ParamValidator().validate(content, botocore_shape()).has_errors()
    assert rule in {name for name, _, _, is_error in said(content) if is_error}


READ_BY_SHELL = text_of(__file__, "read_by_shell")


def test_the_shell_of_version_3_ends_at_the_names_that_a_check_reports(tmp_path: Path) -> None:
    [drivers] = installed(V3).glob("lib/python3*/site-packages/sagemaker/train/container_drivers")
    characters = ["".join(pair) for pair in itertools.product("aZ9._-", repeat=2)]
    names = [*characters, "model.lr", "a b", "a/b", "a:b", "lr"]
    cases = [(name, "1", "training") for name in names]
    cases += [("lr", "1", channel) for channel in (*characters, "val-set", "0.5")]
    cases += [("lr", value, "training") for value in ("it's", "a b", "$HOME", "a\nb", '"a"', "\\")]
    result = subprocess.run(
        [str(installed(V3) / "bin/python"), "-c", READ_BY_SHELL, str(drivers)],
        cwd=tmp_path,
        env={**os.environ, "TRAINING_JOB_NAME": "job"},
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=True,
    )
    ended = dict(zip(cases, json.loads(result.stdout.splitlines()[-1]), strict=True))
    reported = {
        (name, value, channel): bool(variable_findings({name: value}, [channel]).errors)
        for name, value, channel in cases
    }

    assert ended == reported
    assert 20 < sum(ended.values()) < len(cases) - 20
