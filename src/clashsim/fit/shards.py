"""Long work in shards.

An executor makes the shards; each is kept as soon as it is done, and found again by a later call.
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
from clashsim.core.executor import Executor, local, map_items
from clashsim.core.parsing import parse_json
from clashsim.core.progress import Progress, quiet
from clashsim.core.tensors import read_tensors
from clashsim.data.checkpoints import CheckpointStore

Arrays = dict[str, np.ndarray]
Shard = tuple[int, int]  # number and size
_JOB_FILE = "job.json"
_OUR_FILES = re.compile(r"(job\.json|shard-\d{5,}\.safetensors)(\.\w+)?")


@dataclass(frozen=True)
class ShardedJob:
    """Work on n things in shards.

    Attributes:
        n: Number of things.
        size: Things per shard.
        identity: What decides the result; shards of another job are not used.
        title: What to show as progress.
    """

    n: int
    size: int
    identity: dict[str, Any]
    title: str

    def shards(self) -> list[Shard]:
        """All shards in order."""
        count = -(-self.n // self.size)
        return [(i, min(self.size, self.n - i * self.size)) for i in range(count)]


def run_shards(
    make: Callable[[Shard], Arrays],
    job: ShardedJob,
    *,
    checkpoint_dir: Path | str | None = None,
    executor: Executor = local,
    progress: Progress = quiet,
) -> list[Arrays]:
    """Make the shards of a job.

    Args:
        make: Makes a shard.
        job: The job.
        checkpoint_dir: A folder or a URL that fsspec knows. Each shard is written there as it is
            done; those that an earlier call of the same job has written are taken as they are.
        executor: Where shards are made.
        progress: Shows how far it is.

    Returns:
        The shards in order.
    """
    store = None if checkpoint_dir is None else CheckpointStore.of(checkpoint_dir)
    if store is not None:
        _claim(store, job.identity)
    every = job.shards()
    done: dict[int, Arrays] = {}
    with progress(job.title, job.n) as advance:
        for i, count in every:
            earlier = _finished(store, i)
            if earlier is not None:
                done[i] = earlier
                advance(count)
        left = [shard for shard in every if shard[0] not in done]
        for k, made in map_items(executor, _KeptShard(make, store), left):
            i, count = left[k]
            # A worker on another machine may have written to a disk that is not ours.
            if store is not None and not store.has(_file_name(i)):
                store.write(_file_name(i), save(made))
            done[i] = made
            advance(count)
    return [done[i] for i, _ in every]


def clear_shards(checkpoint_dir: Path | str) -> None:
    """Remove the shards of a job that is done, and nothing else that may lie there."""
    CheckpointStore.of(checkpoint_dir).remove(lambda name: _OUR_FILES.fullmatch(name) is not None)


def read_job(checkpoint_dir: Path | str) -> dict[str, Any] | None:
    """The identity of the job whose shards lie there.

    Returns:
        None where there is no job, and an empty one where it cannot be read.
    """
    content = CheckpointStore.of(checkpoint_dir).read(_JOB_FILE)
    if content is None:
        return None
    try:
        return dict(parse_json(content, _JOB_FILE))
    except (DataError, ValueError, TypeError):
        return {}


@dataclass(frozen=True)
class _KeptShard:
    """Makes a shard and writes it where it was made.

    If the process that asked for it is lost, the shard is not.
    """

    make: Callable[[Shard], Arrays]
    store: CheckpointStore | None

    def __call__(self, shard: Shard) -> Arrays:
        made = self.make(shard)
        if self.store is not None:
            self.store.write(_file_name(shard[0]), save(made))
        return made


def _file_name(i: int) -> str:
    """The file of a shard."""
    return f"shard-{i:05d}.safetensors"


def _finished(store: CheckpointStore | None, i: int) -> Arrays | None:
    """A shard that an earlier call has written, or None; a damaged one is made again."""
    content = None if store is None else store.read(_file_name(i))
    if content is None:
        return None
    try:
        return read_tensors(content)[0]
    except DataError:
        return None


def _claim(store: CheckpointStore, identity: dict[str, Any]) -> None:
    """Start a folder for shards, or make sure that the one there belongs to the same job."""
    found = read_job(store.place)
    if found is None:
        store.write(_JOB_FILE, json.dumps(identity).encode())
    elif found != identity:
        raise DataError(
            f"{store.place!r} holds the shards of another sampling job: "
            "delete it, or choose another output"
        )
