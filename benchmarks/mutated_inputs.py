"""Mutants of every kind of input: tracebacks, hangs, slow cases and memory.

python benchmarks/mutated_inputs.py --cases 20000 --seconds 1500
python benchmarks/mutated_inputs.py --surface releases.json --seed 1 --case 4711
"""

import argparse
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import campaign_results
from tests.support.mutated_inputs import MutatedInputs


class HangError(BaseException):
    """A case that used more processor time than its limit; not an Exception, which a reader could catch."""


@dataclass(slots=True)
class Count:
    """The results of one surface."""

    taken: int = 0
    refused: int = 0
    broken: int = 0
    hangs: int = 0
    slowest: float = 0.0
    seconds: float = 0.0
    failures: dict[str, int] = field(default_factory=dict)
    """Tracebacks, and the first case of each."""


def main() -> None:
    options = _options()
    limit = options.memory * 1024**2
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    signal.signal(signal.SIGPROF, _stop)
    with tempfile.TemporaryDirectory() as directory:
        inputs = MutatedInputs(Path(directory))
        if options.case is not None:
            document, read = inputs.case(options.surface[0], options.seed, options.case)
            sys.stdout.buffer.write(document + b"\n")
            read(document)
            return
        surfaces = options.surface or list(inputs.surfaces)
        counts = {name: Count() for name in surfaces}
        began = time.monotonic()
        for name, case in _cases(surfaces, options.cases, options.recipes or options.cases):
            if time.monotonic() - began > options.seconds:
                break
            _run(inputs, name, options.seed, case, options.limit, counts[name])
    seconds = time.monotonic() - began
    _print(counts, options.seed, seconds)
    if options.record:
        per_kind = [count.taken + count.refused + count.broken + count.hangs for count in counts.values()]
        kinds = f"{min(per_kind):,} or more of each of {len(counts)} kinds"
        cases = f"{sum(per_kind):,}: {kinds}, seed {options.seed}"
        broken, hangs = (sum(getattr(each, name) for each in counts.values()) for name in ("broken", "hangs"))
        slowest = max(count.slowest for count in counts.values())
        result = f"{broken} tracebacks, {hangs} hangs, slowest case {slowest:.2f} s"
        campaign_results.record("mutated input", f"{cases}, {seconds:.0f} s", result)
    sys.exit(any(count.broken or count.hangs for count in counts.values()))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--surface", action="append", help="kind of input; the default is all")
    parser.add_argument("--cases", type=int, default=20_000, help="cases of each kind")
    parser.add_argument("--recipes", type=int, help="cases of recipes; the default is --cases")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", type=int, help="print one case, and read it without any protection")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--limit", type=float, default=5.0, help="processor seconds of one case")
    campaign_results.add_option(parser)
    parser.add_argument("--memory", type=int, default=1_500, help="address space in MB")
    return parser.parse_args()


def _cases(surfaces: list[str], cases: int, recipes: int) -> Iterator[tuple[str, int]]:
    """Yield the cases of all surfaces in turn, so that a run that ends early has some of each."""
    for case in range(max(cases, recipes)):
        for name in surfaces:
            if case < (recipes if name == "recipes" else cases):
                yield name, case


def _stop(number: int, frame: object) -> None:
    raise HangError


def _run(inputs: MutatedInputs, name: str, seed: int, case: int, limit: float, count: Count) -> None:
    document, read = inputs.case(name, seed, case)
    began = time.process_time()
    try:
        signal.setitimer(signal.ITIMER_PROF, limit)
        try:
            result = inputs.run(name, document, read)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    except HangError:
        count.hangs += 1
        print(f"hang: --surface '{name}' --seed {seed} --case {case}", flush=True)
    except Exception:
        count.broken += 1
        text = traceback.format_exc(limit=-3)
        if text not in count.failures:
            print(f"traceback: --surface '{name}' --seed {seed} --case {case}\n{text}", flush=True)
        count.failures.setdefault(text, case)
    else:
        count.taken += result.is_taken
        count.refused += not result.is_taken
        count.slowest = max(count.slowest, result.seconds)
    count.seconds += time.process_time() - began


def _print(counts: dict[str, Count], seed: int, seconds: float) -> None:
    print(f"\nseed {seed}, {seconds:.0f} s")
    print(f"{'input':24}{'cases':>9}{'taken':>9}{'refused':>9}{'broken':>8}{'hangs':>7}{'slowest':>9}")
    for name, count in counts.items():
        cases = count.taken + count.refused + count.broken + count.hangs
        numbers = f"{cases:9,}{count.taken:9,}{count.refused:9,}{count.broken:8}{count.hangs:7}"
        print(f"{name:24}{numbers}{count.slowest:7.2f} s")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"largest memory of the process: {peak:.0f} MB")


if __name__ == "__main__":
    main()
