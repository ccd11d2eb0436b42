"""Long work in shards: made by an engine, each kept as soon as it is done, and found again by a
later call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from clashsim.core.errors import DataError
from clashsim.core.executor import Executor, map_items
from clashsim.core.parsing import parse_json
from clashsim.core.progress import Progress
from clashsim.core.tensors import read_tensors
from clashsim.data.checkpoints import CheckpointStore

Arrays = dict[str, np.ndarray]
Shard = tuple[int, int]  # number and size
_JOB = "job.json"
_OURS = re.compile(r"(job\.json|shard-\d{5,}\.safetensors)(\.\w+)?")


def shards(
    make: Callable[[Shard], Arrays],
    n: int,
    size: int,
    *,
    job: dict[str, Any],
    checkpoint_dir: Path | str | None,
    engine: Executor,
    progress: Progress,
    title: str,
) -> list[Arrays]:
    """The shards of `n` things, `size` each, in order; those that lie in `checkpoint_dir` from an earlier
    call of the same `job` are taken as they are.
    """
    place = None if checkpoint_dir is None else CheckpointStore.of(checkpoint_dir)
    if place is not None:
        _claim(place, job)
    every = [(i, min(size, n - i * size)) for i in range(-(-n // size))]
    done: dict[int, Arrays] = {}
    with progress(title, n) as advance:
        for i, count in every if place is not None else ():
            if (shard := _finished(place, i)) is not None:
                done[i] = shard
                advance(count)
        left = [shard for shard in every if shard[0] not in done]
        for k, made in map_items(engine, _Kept(make, place), left):
            i, count = left[k]
            if place is not None and not place.has(
                _name(i)
            ):  # written on a machine whose disk is not ours
                place.write(_name(i), save(made))
            done[i] = made
            advance(count)
    return [done[i] for i, _ in every]


def clear_shards(checkpoint_dir: Path | str) -> None:
    """Remove the shards of a job that is done, and nothing else that may lie there."""
    CheckpointStore.of(checkpoint_dir).remove(lambda name: _OURS.fullmatch(name) is not None)


@dataclass(frozen=True)
class _Kept:
    """Makes a shard and writes it where it was made: if the process that asked for it is lost, the
    shard is not.
    """

    make: Callable[[Shard], Arrays]
    place: CheckpointStore | None

    def __call__(self, shard: Shard) -> Arrays:
        made = self.make(shard)
        if self.place is not None:
            self.place.write(_name(shard[0]), save(made))
        return made


def _name(i: int) -> str:
    return f"shard-{i:05d}.safetensors"


def _finished(place: CheckpointStore | None, i: int) -> Arrays | None:
    """A shard that an earlier call has written, or None; a damaged one is made again."""
    content = None if place is None else place.read(_name(i))
    try:
        return None if content is None else read_tensors(content)[0]
    except DataError:
        return None


def read_job(checkpoint_dir: Path | str) -> dict[str, Any] | None:
    """The job whose shards lie there, or None; an empty one where that cannot be read."""
    marker = CheckpointStore.of(checkpoint_dir).read(_JOB)
    try:
        return None if marker is None else dict(parse_json(marker, _JOB))
    except (DataError, ValueError, TypeError):
        return {}


def _claim(place: CheckpointStore, job: dict[str, Any]) -> None:
    """Start a place for shards, or make sure that the one there belongs to the same job."""
    found = read_job(place.place)
    if found is None:
        place.write(_JOB, json.dumps(job).encode())
    elif found != job:
        raise DataError(
            f"{place.place!r} holds the shards of another sampling job: delete it, or choose another output"
        )
