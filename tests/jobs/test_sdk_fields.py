"""Fields of the API that arguments of the SDK's classes become."""

from bakehouse.jobs import sdk_fields
from bakehouse.jobs.api_fields import find_shape


def test_the_fields_exist() -> None:
    paths = (*sdk_fields.ESTIMATOR.values(), *sdk_fields._INPUT.values(), *sdk_fields._TRAINER.values())
    for path in (*paths, *sdk_fields._TRAINER_VALUES.values()):
        assert find_shape(path)


def test_the_time_is_appended_to_the_name() -> None:
    [field] = sdk_fields.estimator_fields({"base_job_name": "a" * 70})
    assert field.value == "a" * 39
    assert find_shape("TrainingJobName").metadata["max"] == sdk_fields._MAX_NAME
