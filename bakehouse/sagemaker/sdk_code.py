"""Prints an estimator of version 2 of SageMaker's SDK, or a ModelTrainer of version 3."""

import json
from collections.abc import Mapping

from bakehouse.sagemaker.literals import Code, call, literal
from bakehouse.sagemaker.training_request import LaunchImage, TrainingRequest


def estimator_code(request: TrainingRequest, image: LaunchImage, role: str, base_name: str) -> list[str]:
    """An estimator of version 2."""
    name = "Estimator" if image.entry_point else request.sender
    arguments: dict[str, object] = {"image_uri": image.uri}
    if not image.entry_point:
        arguments["entry_point"] = request.entry_point
        if request.source_dir:
            arguments["source_dir"] = request.source_dir
    arguments["role"] = role or Code("sagemaker.get_execution_role()")
    imports = [] if role else ["import sagemaker"]
    before: list[str] = []
    distribution = dict(request.distribution)
    if request.groups[0].name:
        imports.append("from sagemaker.instance_group import InstanceGroup")
        listed = {
            one.name: call("InstanceGroup", one.name, one.instance_type, one.count) for one in request.groups
        }
        before = ["groups = {", *(f"    {literal(key)}: {value}," for key, value in listed.items()), "}"]
        arguments["instance_groups"] = Code("list(groups.values())")
        named = distribution.get("instance_groups")
        if isinstance(named, list):
            distribution["instance_groups"] = [Code(f"groups[{literal(one)}]") for one in named]
    else:
        arguments["instance_type"] = request.groups[0].instance_type
        arguments["instance_count"] = request.groups[0].count
    if image.entry_point:
        # The generic class sends a text as it is, and the toolkit reads JSON.
        arguments |= _some(
            "hyperparameters", {key: json.dumps(value) for key, value in request.hyperparameters.items()}
        )
    else:
        arguments |= _some("distribution", distribution) | _some("hyperparameters", request.hyperparameters)
    arguments |= _some("environment", request.environment)
    if request.keep_alive is not None:
        arguments["keep_alive_period_in_seconds"] = request.keep_alive
    if name == "TensorFlow":
        # Without the version the SDK does not take its own strategy; without model_dir=False it hands the
        # script an argument that it may not know.
        arguments["framework_version"] = request.framework_version
        arguments["model_dir"] = False
    arguments["base_job_name"] = base_name
    imports.append(f"from sagemaker.{name.lower()} import {name}")
    lines = [f"    {key}={literal(value)}," for key, value in arguments.items()]
    return [*imports, "", *before, f"estimator = {name}(", *lines, ")", "estimator.fit()"]


def trainer_code(request: TrainingRequest, image: LaunchImage, role: str, base_name: str) -> list[str]:
    """A ModelTrainer of version 3; an image's own code is started by the toolkit in it, which reads JSON."""
    configs = ["Compute"]
    compute: dict[str, object] = {}
    if request.groups[0].name:
        configs.append("InstanceGroup")
        compute["instance_groups"] = [
            call(
                "InstanceGroup",
                instance_group_name=one.name,
                instance_type=one.instance_type,
                instance_count=one.count,
            )
            for one in request.groups
        ]
    else:
        compute = {
            "instance_type": request.groups[0].instance_type,
            "instance_count": request.groups[0].count,
        }
    if request.keep_alive is not None:
        compute["keep_alive_period_in_seconds"] = request.keep_alive
    arguments: dict[str, object] = {"training_image": image.uri} | _some("role", role)
    imports = ["from sagemaker.train import ModelTrainer"]
    parameters = request.hyperparameters
    if image.entry_point:
        parameters = {key: json.dumps(value) for key, value in parameters.items()}
    else:
        configs.append("SourceCode")
        arguments["source_code"] = call(
            "SourceCode", source_dir=request.source_dir, entry_script=request.entry_point
        )
        for driver, settings in request.distribution.items():
            assert isinstance(settings, Mapping)
            kinds, values = [driver], dict(settings)
            if isinstance(values.get("smp"), Mapping):
                kinds, values["smp"] = ["SMP", driver], call("SMP", **values["smp"])
            imports.append(f"from sagemaker.train.distributed import {', '.join(kinds)}")
            arguments["distributed"] = call(driver, **values)
    imports.insert(1, f"from sagemaker.train.configs import {', '.join(configs)}")
    arguments["compute"] = call("Compute", **compute)
    arguments |= _some("hyperparameters", parameters) | _some("environment", request.environment)
    arguments["base_job_name"] = base_name
    lines = [f"    {key}={literal(value)}," for key, value in arguments.items()]
    return [*imports, "", "trainer = ModelTrainer(", *lines, ")", "trainer.train()"]


def _some(name: str, value: Mapping[str, object] | str) -> dict[str, object]:
    """An argument, where it says something."""
    return {name: value} if value else {}
