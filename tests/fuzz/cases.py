"""Cases: a kind, a valid input of it, and the changes that a seed and a number decide."""

from __future__ import annotations

import random
import shutil
import traceback
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from clashsim.core.errors import ClashError
from fuzz.kinds import Files, Kind, changeable
from fuzz.mutations import mutate

_MAX_MESSAGE_LENGTH = 3000  # characters of a message: more is a dump, not a sentence


@dataclass(frozen=True)
class Outcome:
    """How a case ended: read, refused with a sentence, or a finding, which `detail` describes."""

    status: str
    detail: str = ""


READ = "read"
REFUSED = "refused"
FINDING = "finding"


class Corpus:
    """Valid inputs of each kind, and the cases made of them."""

    def __init__(self, folder: Path, kinds: Mapping[str, Kind]) -> None:
        """Read what `write_corpus` wrote to a folder."""
        self.kinds = dict(kinds)
        self.inputs = {name: _files(folder / name) for name in kinds}
        self.others: list[bytes] = []  # content of all files that may be changed
        # Kinds take turns, those of a larger weight more often, so that every stretch of numbers
        # has all kinds.
        slots = []
        for name, kind in kinds.items():
            files = self.inputs[name]
            may_change = changeable(kind, files)
            self.others += [content for file, content in files.items() if file in may_change]
            slots += [((i + 0.5) / kind.weight, name) for i in range(kind.weight)]
        self.order = [name for _, name in sorted(slots)]

    def kind_of(self, index: int) -> str:
        """The kind of a case."""
        return self.order[index % len(self.order)]

    def files(self, seed: int, index: int) -> Files:
        """The mutated input of a case."""
        name = self.kind_of(index)
        kind = self.kinds[name]
        files = dict(self.inputs[name])
        rng = random.Random(f"{seed}/{index}/files")
        changed = rng.choice(changeable(kind, files))
        files[changed] = mutate(changed, files[changed], rng, self.others)
        kind.finish(files, changed)
        return files

    def run(self, seed: int, index: int, folder: Path) -> Outcome:
        """Write the input of a case to a folder, read it and remove it."""
        write_files(folder, self.files(seed, index))
        try:
            kind = self.kinds[self.kind_of(index)]
            return read(kind, folder, random.Random(f"{seed}/{index}/read"))
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def read(kind: Kind, folder: Path, rng: random.Random) -> Outcome:
    """Read an input as clashsim would."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kind.read(folder, rng)
    except ClashError as error:
        message = str(error)
        if not message or "\n" in message or len(message) > _MAX_MESSAGE_LENGTH:
            complaint = f"the message is not one sentence: {message[:200]!r}"
            return Outcome(FINDING, f"{complaint}\n{traceback.format_exc()}")
        return Outcome(REFUSED, message)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return Outcome(FINDING, traceback.format_exc())
    return Outcome(READ)


def write_corpus(folder: Path, kinds: Mapping[str, Kind]) -> None:
    """Write a valid input of each kind, and make sure that it is read."""
    for name, kind in kinds.items():
        own_folder = folder / name
        own_folder.mkdir(parents=True)
        kind.make(own_folder)
        kind.read(own_folder, random.Random(1))  # a log by its mapping, not by an inferred one


def write_files(folder: Path, files: Files) -> None:
    """Write files by relative name."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _files(folder: Path) -> Files:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(_walk(folder))
    }


def _walk(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())
