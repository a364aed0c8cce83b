"""Distribution of images over builders."""

from collections.abc import Mapping
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from bakehouse.builder.build_steps import BuildStep, StepKey
from bakehouse.builder.distribution import PASS_ON_SECONDS, Estimates, Schedule, step_seconds

BUILDERS = ("far", "near", "third")
STEPS = [StepKey(f"step{number}") for number in range(8)]

closures = st.frozensets(st.sampled_from(STEPS), min_size=1)
fleets = st.dictionaries(st.sampled_from("abcdefg"), closures, min_size=1)
times = st.fixed_dictionaries(dict.fromkeys(STEPS, st.floats(0, 1000)))
caches = st.dictionaries(st.sampled_from(BUILDERS), closures)


def distribute(
    images: Mapping[str, str], seconds: Mapping[str, float], finished: Mapping[str, str] | None = None
) -> Schedule:
    """Distribute images, given by the letters of their steps, over two builders."""
    return Estimates(
        {name: frozenset(map(StepKey, steps)) for name, steps in images.items()},
        {StepKey(step): value for step, value in seconds.items()},
        {builder: frozenset(map(StepKey, steps)) for builder, steps in (finished or {}).items()},
    ).distribute(BUILDERS[:2])


@given(fleets, times, caches, st.integers(1, 3))
def test_each_image_has_one_builder(
    images: Mapping[str, frozenset[StepKey]],
    seconds: Mapping[StepKey, float],
    finished: Mapping[str, frozenset[StepKey]],
    count: int,
) -> None:
    schedule = Estimates(images, seconds, finished).distribute(BUILDERS[:count])

    assert sorted(name for names in schedule.shares.values() for name in names) == sorted(images)
    assert set(schedule.shares) <= {*BUILDERS[:count]}


@given(fleets, times, caches)
def test_a_step_of_two_builders_is_shared_and_no_other(
    images: Mapping[str, frozenset[StepKey]],
    seconds: Mapping[StepKey, float],
    finished: Mapping[str, frozenset[StepKey]],
) -> None:
    schedule = Estimates(images, seconds, finished).distribute(BUILDERS)

    for step in STEPS:
        users = [
            builder
            for builder, names in schedule.shares.items()
            if any(step in images[name] for name in names)
        ]
        assert (step in schedule.shared) == (len(users) > 1)
    assert bool(schedule.first) == bool(schedule.shared)


@given(fleets, times, caches)
def test_several_builders_never_take_longer_than_one(
    images: Mapping[str, frozenset[StepKey]],
    seconds: Mapping[StepKey, float],
    finished: Mapping[str, frozenset[StepKey]],
) -> None:
    estimates = Estimates(images, seconds, finished)

    on_one = min(estimates.schedule({builder: tuple(images)}).seconds for builder in BUILDERS)
    assert estimates.distribute(BUILDERS).seconds <= on_one


@given(st.lists(st.floats(0.001, 1000), min_size=1, max_size=6))
@settings(max_examples=50)
def test_independent_images_end_within_a_sixth_of_the_optimum(seconds: list[float]) -> None:
    # Graham's bound for the longest first on two machines: 4/3 - 1/6
    images = {f"image{number}": frozenset({StepKey(str(number))}) for number in range(len(seconds))}
    times = {StepKey(str(number)): value for number, value in enumerate(seconds)}
    estimates = Estimates(images, times, {})

    best = min(
        max(sum(value for value, side in zip(seconds, sides, strict=True) if side == way) for way in (0, 1))
        for sides in product((0, 1), repeat=len(seconds))
    )
    assert estimates.distribute(BUILDERS[:2]).seconds <= best * (4 / 3 - 1 / 6) + 1e-6


@given(fleets, times)
def test_the_order_of_images_does_not_matter(
    images: Mapping[str, frozenset[StepKey]], seconds: Mapping[StepKey, float]
) -> None:
    backwards = {name: images[name] for name in reversed([*images])}

    one, other = (Estimates(each, seconds, {}).distribute(BUILDERS) for each in (images, backwards))
    assert {builder: {*names} for builder, names in one.shares.items()} == {
        builder: {*names} for builder, names in other.shares.items()
    }


def test_the_longest_images_are_assigned_first() -> None:
    schedule = distribute({"a": "1", "b": "2", "c": "3"}, {"1": 10, "2": 20, "3": 30})

    assert schedule.shares == {"far": ("c",), "near": ("b", "a")}
    assert schedule.seconds == 30


def test_images_stay_together_if_they_share_most_of_their_time() -> None:
    schedule = distribute({"a": "01", "b": "02"}, {"0": 100, "1": 4, "2": 4})

    assert schedule.shares == {"far": ("a", "b")}
    assert schedule.shared == frozenset()


def test_short_shared_steps_run_before_images_on_both_builders() -> None:
    schedule = distribute({"a": "01", "b": "02"}, {"0": 10, "1": 60, "2": 60})

    assert schedule.shares == {"far": ("a",), "near": ("b",)}
    assert (schedule.shared, schedule.first) == (frozenset({StepKey("0")}), "far")
    assert schedule.seconds == 10 + PASS_ON_SECONDS + 60


def test_an_image_stays_on_the_builder_that_has_its_steps() -> None:
    times = {"1": 30, "2": 30}

    schedule = distribute({"a": "1", "b": "2"}, times, {"far": "2", "near": "1"})

    assert schedule.shares == {"near": ("a",), "far": ("b",)}
    assert schedule.seconds == 0


def test_the_builder_that_has_the_shared_steps_runs_them() -> None:
    schedule = distribute({"a": "01", "b": "02"}, {"0": 10, "1": 60, "2": 60}, {"near": "0"})

    assert schedule.first == "near"


def test_seconds_of_a_stage_are_divided_among_its_steps() -> None:
    one, two, three = (
        BuildStep(step, stage, 1, frozenset()) for step, stage in zip(STEPS, "aab", strict=False)
    )
    other = BuildStep(STEPS[3], "b", 1, frozenset())
    unknown = BuildStep(STEPS[4], "c", 1, frozenset())

    seconds = step_seconds(
        {"x": (one, two, three), "y": (other, unknown)}, {("x", "a"): 8.0, ("x", "b"): 3.0}
    )

    assert seconds == dict(zip(STEPS, (4.0, 4.0, 3.0, 3.0, 10.0), strict=False))
