"""The moments of every cached layer in one pass, here or piece by piece on other processes, with the same bits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from pipeline.execution.cluster import Tls
from pipeline.execution.run import check_address, run
from pipeline.features import open_features
from pipeline.probes.moments import PIECE_BLOCKS, Moments, MomentsFitter, targets
from pipeline.probes.rows import Block, Rows


@dataclass(frozen=True)
class PieceJob:
    """All that a worker is told; small, because it reads the features itself."""

    store: Path
    firsts: np.ndarray
    class_weights: np.ndarray | None
    device: str | None
    threads: int


def layer_moments(rows: Rows) -> dict[str, Moments]:
    """The moments of every layer of these rows; empty when there are none."""
    if not len(rows):
        return {}
    fitters = _fitters(first_rows(rows))
    _update(fitters, rows, rows.classes)
    return _results(rows, fitters)


def distributed_moments(
    rows: Rows, threads: int, scheduler: str, tls: Tls | None = None, device: str | None = None
) -> dict[str, Moments]:
    """The same bits as `layer_moments`, of a whole split, its pieces summed up by other processes.

    Sums that come early wait here for their turn: `layers × (width + scores)²` numbers each. A single piece is summed
    up here.

    Raises:
        PermafrostError: the scheduler is not known, not allowed or not reached.
    """
    check_address(scheduler)
    pieces = -(-rows.blocks // PIECE_BLOCKS)
    if pieces < 2 or scheduler == "inline":
        return layer_moments(rows)
    firsts, early, following = first_rows(rows), {}, 0
    fitters = _fitters(firsts)
    job = PieceJob(rows.path.resolve(), firsts, rows.class_weights, device, threads)
    for piece, sums in run(partial(sum_piece, job), list(range(pieces)), scheduler, tls):
        early[piece] = sums
        while following in early:
            for fitter, one in zip(fitters, early.pop(following), strict=True):
                fitter.add_piece(one, rows.width)
            following += 1
    return _results(rows, fitters)


def sum_piece(job: PieceJob, piece: int) -> list[np.ndarray]:
    """The sums of one piece of train, for each layer: what a worker does."""
    with threadpool_limits(job.threads):
        rows = Rows(open_features(job.store), "train", 0, device=job.device)
        rows.class_weights = job.class_weights
        fitters = _fitters(job.firsts)
        wanted = range(piece * PIECE_BLOCKS, min((piece + 1) * PIECE_BLOCKS, rows.blocks))
        _update(fitters, rows.read_blocks(wanted), rows.classes)
        return [fitter.sums for fitter in fitters]


def first_rows(rows: Rows) -> np.ndarray:
    """The first row of each layer with its targets, which all pieces are summed up about: `(layer, column)`."""
    x, y = rows.first(), targets(rows.labels[:1], rows.classes)
    return np.concatenate([x, np.broadcast_to(y, (len(x), y.shape[1]))], axis=1)


def _fitters(firsts: np.ndarray) -> list[MomentsFitter]:
    return [MomentsFitter(first) for first in firsts]


def _update(fitters: list[MomentsFitter], blocks: Iterable[Block], classes: int) -> None:
    for block in blocks:
        y = targets(block.labels, classes)
        for index, fitter in enumerate(fitters):
            fitter.update(block.x[:, index], y, block.row_weights)


def _results(rows: Rows, fitters: list[MomentsFitter]) -> dict[str, Moments]:
    return {layer: fitter.result for layer, fitter in zip(rows.layers, fitters, strict=True)}
