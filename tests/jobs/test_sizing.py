"""Instances for a job: ratios and costs of AWS's own examples, and errors."""

from typing import Any

import pytest

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.instance_types import Instance, instances
from bakehouse.errors import UsageError
from bakehouse.jobs.sizing import Mix, Need, Recommendation, Row, gain, read_step_seconds, recommend, text
from tests.support import own_recipes
from tests.support.errors import refusal

INSTANCES = {
    instance.name: instance
    for instance in (
        Instance("ml.p4d.24xlarge", 96, 8),
        Instance("ml.p3.2xlarge", 8, 1),
        Instance("ml.p3.8xlarge", 32, 4),
        Instance("ml.g5.xlarge", 4, 1),
        Instance("ml.g5.8xlarge", 32, 1),
        Instance("ml.g5.12xlarge", 48, 4),
        Instance("ml.g5.24xlarge", 96, 4),
        Instance("ml.g5.48xlarge", 192, 8),
        Instance("ml.g7.2xlarge"),
        Instance("ml.c5.9xlarge", 36, 0),
        Instance("ml.c5.18xlarge", 72, 0),
        Instance("ml.c7g.16xlarge", 64, 0),
        Instance("ml.p6e-gb200.36xlarge", 144, 4),
        Instance("ml.trn1.32xlarge", 128, 0, neuron_cores=32, neuron_architecture="2"),
        Instance("ml.trn3.48xlarge", 192, 0, neuron_architecture="4"),
    )
}
PRICES = {"ml.p4d.24xlarge": 37.688, "ml.c5.18xlarge": 3.672, "ml.p3.2xlarge": 3.825, "ml.c5.9xlarge": 1.836}
"""Hourly prices at the time of the published measurements."""


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return own_recipes.catalog()


def sized(instance: str, gpus: int = 8, vcpus: float = 20, batch: int = 0, **others: Any) -> Recommendation:
    return recommend(Need(gpus, vcpus, batch), instance, INSTANCES, **others)


def row_names(sizing: Recommendation) -> list[tuple[str, bool]]:
    return [(row.mix.name, row.is_enough) for row in sizing.rows]


def mistake(**options: Any) -> str:
    return refusal(UsageError, sized, **options).strip()


def test_helpers_bring_the_ratio_up() -> None:
    """From 12:1 to 30:1 with the two instances that the published example adds; one is enough for 20:1."""
    table = sized("ml.p4d.24xlarge", helpers=["ml.c5.18xlarge"])

    assert [(row.mix.helpers, row.mix.ratio, row.is_enough) for row in table.rows] == [
        (0, 12, False),
        (1, 21, True),
        (2, 30, True),
    ]
    assert table.rows[2].mix.vcpus == 240


@pytest.mark.parametrize(
    ("instance", "helper", "helpers", "seconds", "prices", "costs", "gain_text"),
    [
        (
            "ml.p4d.24xlarge",
            "ml.c5.18xlarge",
            2,
            (0.192, 0.086),
            (37.688, 45.032),
            (0.201, 0.108),
            "2.2 x faster, 46 % cheaper",
        ),
        (
            "ml.p3.2xlarge",
            "ml.c5.9xlarge",
            1,
            (1.193, 0.184),
            (3.825, 5.661),
            (0.127, 0.029),
            "6.5 x faster, 77 % cheaper",
        ),
    ],
)
def test_what_the_published_examples_gained(
    instance: str,
    helper: str,
    helpers: int,
    seconds: tuple[float, float],
    prices: tuple[float, float],
    costs: tuple[float, float],
    gain_text: str,
) -> None:
    """ResNet50 with tf.data.service, and MNIST with heavy preprocessing over gRPC: AWS's own measurements."""
    mix = f"{instance}+{helpers}*{helper}"
    measured = {"": seconds[0], mix: seconds[1]}
    gpus = INSTANCES[instance].gpus or 0
    table = sized(instance, gpus, helpers=[helper], prices=PRICES, seconds=measured)
    first, *rest = table.rows
    [row] = [row for row in rest if row.mix.helpers == helpers]

    assert (first.price, row.price) == pytest.approx(prices)
    assert (round(first.cost or 0, 3), round(row.cost or 0, 3)) == costs
    assert gain(first, row) == gain_text


def test_first_a_larger_type_of_the_family() -> None:
    table = sized("ml.g5.12xlarge")

    assert row_names(table) == [
        ("2 ml.g5.12xlarge", False),
        ("1 ml.g5.48xlarge", True),
        ("2 ml.g5.24xlarge", True),
        ("2 ml.g5.12xlarge + 1 ml.c5.18xlarge", True),
        ("2 ml.g5.12xlarge + 2 ml.c5.18xlarge", True),
    ]


def test_the_cheapest_larger_type_first_where_prices_are_known() -> None:
    prices = {"ml.g5.24xlarge": 1.0, "ml.g5.48xlarge": 3.0}

    assert row_names(sized("ml.g5.12xlarge", prices=prices))[1:3] == [
        ("2 ml.g5.24xlarge", True),
        ("1 ml.g5.48xlarge", True),
    ]


def test_a_larger_type_with_the_same_ratio_does_not_help() -> None:
    table = sized("ml.p3.2xlarge", 4)

    assert "ml.p3.8xlarge" not in {row.mix.instance.name for row in table.rows}
    assert "no larger type of ml.p3 has 20 vCPUs per GPU" in table.notes


def test_what_is_enough_needs_nothing() -> None:
    assert row_names(sized("ml.g5.48xlarge")) == [("1 ml.g5.48xlarge", True)]


def test_a_mix_that_was_measured_is_shown_too() -> None:
    table = sized("ml.g5.48xlarge", seconds={"ml.g5.48xlarge + 3 ml.c5.9xlarge": 0.5})

    assert row_names(table)[1:] == [("1 ml.g5.48xlarge + 3 ml.c5.9xlarge", True)]
    assert table.rows[1].seconds == 0.5


def test_ranks_and_the_global_batch() -> None:
    table = sized("ml.p4d.24xlarge", 16, 12, batch=64)

    assert table.notes == (
        "2 ml.p4d.24xlarge: 16 ranks, 8 on each of 2 instances",
        "global batch: 16 replicas x 64 = 1024",
    )


def test_instances_with_more_gpus_than_asked() -> None:
    assert sized("ml.g5.48xlarge", 3).notes[0] == "requested 3 GPUs, got 8 with 1 ml.g5.48xlarge"


def test_no_price_is_made_up() -> None:
    table = sized("ml.p4d.24xlarge", helpers=["ml.c5.18xlarge"], prices={"ml.p4d.24xlarge": 37.688})

    assert [row.price for row in table.rows] == [37.688, None, None]
    assert "no price for ml.c5.18xlarge" in table.notes


def test_slower_and_dearer() -> None:
    mix = Mix(INSTANCES["ml.p4d.24xlarge"], 1)
    first, row = Row(mix, True, 10.0, 0.1), Row(mix, True, 20.0, 0.2)

    assert gain(first, row) == "2.0 x slower, 300 % more expensive"
    assert gain(first, first) == ""
    assert gain(first, Row(mix, True, None, 0.05)) == "2.0 x faster"


def test_the_answer() -> None:
    measured = {"": 0.192, "ml.p4d.24xlarge+2*ml.c5.18xlarge": 0.086}
    table = sized("ml.p4d.24xlarge", 8, 20, 64, helpers=["ml.c5.18xlarge"], prices=PRICES, seconds=measured)

    assert text(table) == (
        "8 GPUs with 20 vCPUs each: 160 vCPUs\n"
        "\n"
        "instances                             vCPU:GPU  vCPUs  enough  per hour  s/step  100 steps\n"
        "1 ml.p4d.24xlarge                     12:1      96     no      37.688    0.192   0.201\n"
        "1 ml.p4d.24xlarge + 1 ml.c5.18xlarge  21:1      168    yes     41.360\n"
        "1 ml.p4d.24xlarge + 2 ml.c5.18xlarge  30:1      240    yes     45.032    0.086   0.108      "
        "2.2 x faster, 46 % cheaper\n"
        "\n"
        "no larger type of ml.p4d has 20 vCPUs per GPU\n"
        "1 ml.p4d.24xlarge + 1 ml.c5.18xlarge: 8 ranks\n"
        "global batch: 8 replicas x 64 = 512\n"
        "instance groups: train=ml.p4d.24xlarge:1 data=ml.c5.18xlarge:1; start the launcher in "
        "`train`\n"
    )


def test_empty_columns_are_omitted() -> None:
    assert text(sized("ml.g5.48xlarge")).splitlines()[2:4] == [
        "instances         vCPU:GPU  vCPUs  enough",
        "1 ml.g5.48xlarge  24:1      192    yes",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"instance": "ml.p4.24xlarge"},
            "error: unknown instance type `ml.p4.24xlarge`\n\nhint: did you mean `ml.p4d.24xlarge`?",
        ),
        (
            {"instance": "ml.c5.9xlarge"},
            "error: `ml.c5.9xlarge` has no GPU\n\nhint: use it with `--helper` instead",
        ),
        (
            {"instance": "ml.trn3.48xlarge"},
            "error: the catalogue does not contain the number of NeuronCores of `ml.trn3.48xlarge`\n"
            "\nhint: add it to the component `instance`, with its source",
        ),
        (
            {"instance": "ml.trn1.32xlarge", "gpus": -1},
            "error: the job has -1 NeuronCores\n\nhint: set `--gpus` to at least 1",
        ),
        (
            {"instance": "ml.p4d.24xlarge", "helpers": ["ml.trn1.32xlarge"]},
            "error: `ml.trn1.32xlarge` has 32 NeuronCores\n"
            "\nhint: use a type without accelerators, such as `ml.c5.18xlarge`",
        ),
        (
            {"instance": "ml.g7.2xlarge"},
            "error: the catalogue does not contain the number of GPUs of `ml.g7.2xlarge`\n"
            "\nhint: add it to the component `instance`, with its source",
        ),
        (
            {"instance": "ml.p4d.24xlarge", "vcpus": 0},
            "error: the number of vCPUs per GPU is missing\n"
            "\nhint: set `--vcpu-per-gpu` to the vCPUs that keep one GPU busy, for example to 20",
        ),
        (
            {"instance": "ml.p4d.24xlarge", "gpus": -1},
            "error: the job has -1 GPUs\n\nhint: set `--gpus` to at least 1",
        ),
        (
            {"instance": "ml.p4d.24xlarge", "helpers": ["ml.g5.xlarge"]},
            "error: `ml.g5.xlarge` has 1 GPU\n"
            "\nhint: use a type without accelerators, such as `ml.c5.18xlarge`",
        ),
        (
            {"instance": "ml.p4d.24xlarge", "prices": {"ml.p4.24xlarge": 1.0}},
            "error: unknown instance type `ml.p4.24xlarge`\n\nhint: did you mean `ml.p4d.24xlarge`?",
        ),
        (
            {"instance": "ml.p4d.24xlarge", "seconds": {"2 + 3": 1.0}},
            "error: `2 + 3` is not a combination of instances\n"
            "\nhint: use for example `ml.p4d.24xlarge+2*ml.c5.18xlarge`",
        ),
        (
            {"instance": "ml.p4d.24xlarge", "seconds": {"2 ml.c5.9xlarge": 1.0}},
            "error: `ml.c5.9xlarge` has no GPU\n\nhint: name the type with GPUs first",
        ),
    ],
)
def test_a_mistake_gets_its_answer(options: dict[str, Any], message: str) -> None:
    assert mistake(**options) == message


def test_numbers_by_name() -> None:
    assert read_step_seconds(["ml.a=1.5", "ml.b+2*ml.c = .25"]) == {"ml.a": 1.5, "ml.b+2*ml.c": 0.25}
    assert read_step_seconds(["0.2"]) == {"": 0.2}


def test_helpers_have_the_platform_of_the_trainers() -> None:
    assert mistake(instance="ml.p4d.24xlarge", helpers=["ml.c7g.16xlarge"]) == (
        "error: `ml.c7g.16xlarge` is linux/arm64, but `ml.p4d.24xlarge` is linux/amd64\n"
        "\n"
        "hint: use a type of the same platform: all hosts of a job run one image"
    )
    assert row_names(sized("ml.p6e-gb200.36xlarge", gpus=4, vcpus=40)) == [("1 ml.p6e-gb200.36xlarge", False)]
    assert row_names(sized("ml.p6e-gb200.36xlarge", gpus=4, vcpus=40, helpers=["ml.c7g.16xlarge"]))[1:] == [
        ("1 ml.p6e-gb200.36xlarge + 1 ml.c7g.16xlarge", True),
        ("1 ml.p6e-gb200.36xlarge + 2 ml.c7g.16xlarge", True),
    ]


@pytest.mark.parametrize("word", ["ml.a", "ml.a=", "ml.a=x", "ml.a=-1", "ml.a=0", "ml.a=nan"])
def test_an_invalid_name_and_number(word: str) -> None:
    with pytest.raises(UsageError, match="is not `NAME=NUMBER`"):
        read_step_seconds([word])


def test_the_catalogue_has_vcpus_of_all_gpu_types(catalog: Catalog) -> None:
    types = instances(catalog)

    assert types["ml.p4d.24xlarge"] == Instance("ml.p4d.24xlarge", 96, 8, 1152, 4, True, "8.0")
    assert types["ml.c5.18xlarge"] == Instance("ml.c5.18xlarge", 72, 0, 144, 0, False)
    assert types["ml.c5.18xlarge"].family == "ml.c5"
    assert types["ml.g7.12xlarge"] == Instance("ml.g7.12xlarge", 48, 2, 192, 1, None, "12.0")


def test_gpus_never_come_without_vcpus(catalog: Catalog) -> None:
    lacking = [
        instance.name for instance in instances(catalog).values() if instance.gpus and not instance.vcpus
    ]

    assert lacking == []
