"""`python -m fuzz`: mutate valid files, read them, and report what ended in no sentence."""

from __future__ import annotations

import argparse
import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from fuzz.cases import FINDING, READ, REFUSED, Corpus, Outcome, read, write_corpus, write_files
from fuzz.kinds import kinds
from fuzz.workers import Limits, Pool, Result, Run

_SAVED = 3  # cases of one finding that are kept
_REPORT_INTERVAL = 30.0  # s between lines on the progress


def main(arguments: list[str] | None = None) -> int:
    """The command; 1 where something was found."""
    options = _options(arguments)
    if options.reproduce is not None:
        return _reproduce(options.reproduce)
    chosen = {name: kind for name, kind in kinds().items() if _is_chosen(name, options.kinds)}
    if not chosen:
        print(f"no kind begins with {' or '.join(options.kinds)}; there are {', '.join(kinds())}")
        return 2
    asked = f"{options.cases} cases of {len(chosen)} kinds, seed {options.seed}"
    print(f"{asked}, at most {options.seconds:g} s", flush=True)
    with tempfile.TemporaryDirectory(prefix="clashsim-corpus-") as folder:
        write_corpus(Path(folder), chosen)
        corpus = Corpus(Path(folder), chosen)
        counts = CaseCounts(corpus, options.seed, options.out)
        limits = Limits(options.case_seconds, options.case_memory << 20)
        started = time.monotonic()
        with Pool(
            partial(_runner, Path(folder), tuple(chosen), options.seed),
            workers=options.workers,
            limits=limits,
        ) as pool:
            last_report = started
            for result in pool.results(_until(options.cases, started + options.seconds)):
                counts.add(result)
                if time.monotonic() - last_report > _REPORT_INTERVAL:
                    last_report = time.monotonic()
                    elapsed = last_report - started
                    print(
                        f"{counts.done} cases in {elapsed:.0f} s, {counts.found} findings",
                        flush=True,
                    )
        counts.report(time.monotonic() - started)
    if counts.done < options.cases:
        print(
            f"stopped after {options.seconds:g} s: {counts.done} of {options.cases} cases were run"
        )
    return 1 if counts.found else 0


class CaseCounts:
    """Counts of what happened to each kind, and the findings, of which the first are saved."""

    def __init__(self, corpus: Corpus, seed: int, out: Path) -> None:
        """out: folder to save findings to."""
        self._corpus = corpus
        self._seed = seed
        self._out = out
        self._counts = {name: Counter[str]() for name in corpus.kinds}
        # By kind: all seconds, those of the slowest case, and most bytes by which memory grew.
        self._seconds = Counter[str]()
        self._slowest = Counter[str]()
        self._growth = Counter[str]()
        self._alike = Counter[str]()  # findings by label

    @property
    def done(self) -> int:
        """Cases that have ended."""
        return sum(count.total() for count in self._counts.values())

    @property
    def found(self) -> int:
        """Cases that ended in a finding."""
        return sum(count[FINDING] for count in self._counts.values())

    def add(self, result: Result) -> None:
        """Count a case."""
        name = self._corpus.kind_of(result.index)
        self._counts[name][result.outcome.status] += 1
        self._seconds[name] += result.seconds
        self._slowest[name] = max(self._slowest[name], result.seconds)
        self._growth[name] = max(self._growth[name], result.growth)
        if result.outcome.status == FINDING:
            self._keep(name, result)

    def report(self, seconds: float) -> None:
        """Print the counts."""
        rows = [("kind", "read", "refused", "findings", "ms/case", "slowest s", "most MB")]
        for name, count in self._counts.items():
            mean = 1e3 * self._seconds[name] / max(count.total(), 1)
            slowest = f"{self._slowest[name]:.2f}"
            growth = f"{self._growth[name] / 1e6:.0f}"
            statuses = (str(count[status]) for status in (READ, REFUSED, FINDING))
            rows.append((name, *statuses, f"{mean:.1f}", slowest, growth))
        print()
        for name, *cells in rows:
            print(f"{name:28}" + "".join(f"{cell:>11}" for cell in cells))
        pace = f"{self.done / max(seconds, 1e-9):.0f} per second"
        print(f"{self.done} cases in {seconds:.0f} s ({pace}), seed {self._seed}")
        print(f"{self.found} findings")
        for label, times in self._alike.most_common():
            print(f"  {times} times {label}")

    def _keep(self, name: str, result: Result) -> None:
        """Save and print a finding, unless enough of its kind are saved already."""
        label = f"{name.split()[0]}: {_label(result.outcome)}"
        self._alike[label] += 1
        if self._alike[label] > _SAVED:
            return
        folder = self._out / f"{name.replace(' ', '-')}-{self._seed}-{result.index}"
        write_files(folder / "files", self._corpus.files(self._seed, result.index))
        about = f"{name}\n{self._seed}\n{result.index}\n{result.outcome.detail}\n"
        (folder / "finding.txt").write_text(about, errors="replace")
        print(f"\nfinding in {name}, seed {self._seed}, case {result.index}, saved to {folder}")
        print(result.outcome.detail.strip(), flush=True)


def _label(outcome: Outcome) -> str:
    """What findings with one cause have in common: the kind of error and where it was raised."""
    lines = outcome.detail.strip().splitlines()
    places = re.findall(r'clashsim/([\w/]+\.py)", line (\d+)', outcome.detail)
    is_traceback = any(line.startswith("Traceback") for line in lines)
    if not places:
        return lines[0][:80]
    # A dump of where it hung has the last call first.
    file, line = places[-1] if is_traceback else places[0]
    what = re.split("[:(]", lines[-1] if is_traceback else lines[0])[0]
    return f"{what[:60]} at {file}:{line}"


def _runner(folder: Path, names: tuple[str, ...], seed: int) -> Run:
    """What a worker runs cases with."""
    corpus = Corpus(folder, {name: kind for name, kind in kinds().items() if name in names})
    for name, kind in corpus.kinds.items():
        # Imports what this kind needs, so that no case is charged for it.
        read(kind, folder / name, random.Random(1))
    return partial(corpus.run, seed)


def _until(cases: int, end: float) -> Iterator[int]:
    """Numbers of cases, until a time is over."""
    for index in range(cases):
        if time.monotonic() > end:
            return
        yield index


def _reproduce(folder: Path) -> int:
    """Read a saved finding again, in this process."""
    name, seed, index, *_ = (folder / "finding.txt").read_text().splitlines()
    kind = kinds()[name]
    outcome = read(kind, folder / "files", random.Random(f"{seed}/{index}/read"))
    print(f"{name}: {outcome.status}\n{outcome.detail}")
    return 1 if outcome.status == FINDING else 0


def _is_chosen(name: str, prefixes: list[str]) -> bool:
    return not prefixes or any(name.startswith(prefix) for prefix in prefixes)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=20_000, help="cases to run")
    parser.add_argument(
        "--seconds", type=float, default=900.0, help="no case is begun after so many seconds"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="decides every case; another seed, other cases"
    )
    parser.add_argument("--workers", type=int, default=2, help="processes that run cases")
    parser.add_argument(
        "--kinds",
        nargs="*",
        default=[],
        help="run only kinds that begin with one of these words, as in: log settings",
    )
    parser.add_argument(
        "--case-seconds", type=float, default=30.0, help="a case that computes longer is a finding"
    )
    parser.add_argument(
        "--case-memory", type=int, default=1024, help="MB by which the memory of a case may grow"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("build/fuzz"), help="folder to save findings to"
    )
    parser.add_argument(
        "--reproduce", type=Path, help="folder of a saved finding, to be read again"
    )
    return parser.parse_args(arguments)
