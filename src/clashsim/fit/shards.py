"""Long jobs that are split into shards.

An executor computes the shards. Each is written to a checkpoint folder as soon as it is done, and a
later call reads it from there.
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
Shard = tuple[int, int]  # number of the shard, and number of things in it
_JOB_FILE = "job.json"
_OUR_FILES = re.compile(r"(job\.json|shard-\d{5,}\.safetensors)(\.\w+)?")


@dataclass(frozen=True)
class ShardedJob:
    """A job on n things (strikes, trajectories) that is split into shards.

    Attributes:
        n: Number of things.
        size: Things per shard.
        identity: Everything that the result depends on, as JSON; shards in the checkpoint folder
            are only used if their job had the same identity.
        title: Title of the progress display.
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
    """Compute the shards of a job.

    Args:
        make: Computes a shard.
        job: The job.
        checkpoint_dir: A folder, or a URL that fsspec supports. Each finished shard is written
            there; shards that an earlier call of the same job has written are not computed again.
        executor: Where shards are computed.
        progress: Shows the progress.

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
        remaining = [shard for shard in every if shard[0] not in done]
        for k, made in map_items(executor, _KeptShard(make, store), remaining):
            i, count = remaining[k]
            # A worker on another machine may have written the shard to its own disk.
            if store is not None and not store.has(_file_name(i)):
                store.write(_file_name(i), save(made))
            done[i] = made
            advance(count)
    return [done[i] for i, _ in every]


def clear_shards(checkpoint_dir: Path | str) -> None:
    """Remove a job's files from its checkpoint folder, but no other files in it."""
    CheckpointStore.of(checkpoint_dir).remove(lambda name: _OUR_FILES.fullmatch(name) is not None)


def read_job(checkpoint_dir: Path | str) -> dict[str, Any] | None:
    """The identity of the job whose shards are in a checkpoint folder.

    Returns:
        None if there is no job, and an empty dictionary if its file cannot be read.
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
    """Computes a shard and writes it in the worker.

    So the shard is kept even if the calling process is killed before it receives the result.
    """

    make: Callable[[Shard], Arrays]
    store: CheckpointStore | None

    def __call__(self, shard: Shard) -> Arrays:
        made = self.make(shard)
        if self.store is not None:
            self.store.write(_file_name(shard[0]), save(made))
        return made


def _file_name(i: int) -> str:
    """File name of shard number i."""
    return f"shard-{i:05d}.safetensors"


def _finished(store: CheckpointStore | None, i: int) -> Arrays | None:
    """Shard number i if an earlier call has written it; None if not, or if it is damaged."""
    content = None if store is None else store.read(_file_name(i))
    if content is None:
        return None
    try:
        return read_tensors(content)[0]
    except DataError:
        return None


def _claim(store: CheckpointStore, identity: dict[str, Any]) -> None:
    """Write the job's identity to the folder; raise `DataError` if it has another job's shards."""
    found = read_job(store.place)
    if found is None:
        store.write(_JOB_FILE, json.dumps(identity).encode())
    elif found != identity:
        raise DataError(
            f"{store.place!r} holds the shards of another sampling job: "
            "delete it, or choose another output"
        )
