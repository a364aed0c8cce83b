"""Distribution of images over builders by the measured times of their steps, longest first."""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from bakehouse.builder.build_steps import BuildStep, StepKey

PASS_ON_SECONDS = 5.0
"""Estimated time to send the results of shared steps to another builder, after they ran."""
_UNMEASURED_SECONDS = 10.0
"""Estimated time of a stage that no recorded build ran."""

_Shares = Mapping[str, tuple[str, ...]]
"""Names of images by builder."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Images by builder, and the steps that run first because images on several builders share them."""

    shares: Mapping[str, tuple[str, ...]]
    """Names of images by builder, for builders that get any."""
    shared: frozenset[StepKey]
    first: str
    """The builder that runs the shared steps; empty if there are none."""
    seconds: float
    """Estimated time until all images are built."""


@dataclass(frozen=True, slots=True)
class Estimates:
    """Estimated times of builds. A builder runs its steps one after the other.

    In fact steps run in parallel, but they share the builder's processors, disk and network.
    """

    images: Mapping[str, frozenset[StepKey]]
    """The steps of each image, with all steps that they build on."""
    seconds: Mapping[StepKey, float]
    finished: Mapping[str, Collection[StepKey]]
    """Steps in the caches of builders."""

    def distribute(self, builders: Sequence[str]) -> Schedule:
        """Assign each image to a builder, so that the last builder finishes early.

        If estimates are equal, the assignment with the least total work is selected, then the first one by
        the order of `builders`.
        """
        shares: _Shares = {}
        for name in sorted(self.images, key=lambda name: (-self._total(self.images[name]), name)):
            candidates = [{**shares, builder: (*shares.get(builder, ()), name)} for builder in builders]
            shares = min(candidates, key=lambda shares: (self.schedule(shares).seconds, self._work(shares)))
        on_one = [self.schedule({builder: tuple(self.images)}) for builder in builders]
        return min([self.schedule(shares), *on_one], key=lambda schedule: schedule.seconds)

    def schedule(self, shares: _Shares) -> Schedule:
        """Return the schedule of an assignment of images."""
        steps = self._steps(shares)
        users = Counter(step for of_builder in steps.values() for step in of_builder)
        shared = frozenset(step for step, count in users.items() if count > 1)
        first = min(steps, key=lambda builder: self._cost(builder, shared)) if shared else ""
        passed_on = self._cost(first, shared) + PASS_ON_SECONDS if shared else 0.0
        ends = [self._cost(builder, of_builder - shared) for builder, of_builder in steps.items()]
        return Schedule(shares, shared, first, passed_on + max(ends, default=0.0))

    def _steps(self, shares: _Shares) -> dict[str, frozenset[StepKey]]:
        """Return the steps of the images of each builder."""
        return {
            builder: frozenset().union(*(self.images[name] for name in names))
            for builder, names in shares.items()
        }

    def _work(self, shares: _Shares) -> float:
        return sum(self._cost(builder, steps) for builder, steps in self._steps(shares).items())

    def _cost(self, builder: str, steps: frozenset[StepKey]) -> float:
        """Return the time of the steps that a builder does not have."""
        return self._total(steps.difference(self.finished.get(builder, ())))

    def _total(self, steps: frozenset[StepKey]) -> float:
        # `sum` depends on the order of a set, which differs between processes.
        return math.fsum(self.seconds[step] for step in steps)


def step_seconds(
    images: Mapping[str, Sequence[BuildStep]], measured: Mapping[tuple[str, str], float]
) -> dict[StepKey, float]:
    """Estimate the seconds of steps from measured seconds of stages, by image and stage.

    If a stage was not measured for the image, its time in another image is used.
    """
    by_stage = {stage: value for (_, stage), value in sorted(measured.items())}
    seconds: dict[StepKey, float] = {}
    for image, steps in images.items():
        counts = Counter(step.stage for step in steps)
        for step in steps:
            known = measured.get((image, step.stage), by_stage.get(step.stage, _UNMEASURED_SECONDS))
            seconds.setdefault(step.key, known / counts[step.stage])
    return seconds
