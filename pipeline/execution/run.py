"""Runs a function over numbered pieces of work: here, on processes of this machine, or on a cluster.

The function and its pieces are all that travels. It must be importable, small when pickled, and safe to run twice for
one piece, since a piece whose worker dies is given to another.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import urlparse

from pipeline.errors import PermafrostError
from pipeline.execution.cluster import Tls, connect

T = TypeVar("T")

AHEAD = 2
"""Pieces submitted for each worker at a time: one at work, one waiting."""


def run(
    function: Callable[[int], T], pieces: list[int], scheduler: str, tls: Tls | None = None
) -> Iterator[tuple[int, T]]:
    """Run `function` on every piece and give (piece, result) as they finish.

    Args:
        function: what to run; see above.
        pieces: their numbers.
        scheduler: `inline`, `local:N` for N processes, or a Dask scheduler's address.
        tls: certificates for a `tls://` address.

    Raises:
        PermafrostError: the scheduler is not known, not allowed or not reached, or a piece kills every worker it is
            given to.
    """
    check_address(scheduler)
    if scheduler == "inline" or not pieces:
        for piece in pieces:
            yield piece, function(piece)
        return
    with connect(scheduler, tls) as client:
        yield from _on_cluster(client, function, pieces)


def check_address(scheduler: str) -> None:
    """Refuse what is no scheduler, and plain TCP to another host: a scheduler can run any code on its workers and here.

    Raises:
        PermafrostError: with what would be accepted.
    """
    if scheduler == "inline" or (
        scheduler.startswith("local:") and scheduler[6:].isdecimal() and int(scheduler[6:]) > 0
    ):
        return
    try:
        address = urlparse(scheduler)
        scheme, host, port = address.scheme, address.hostname, address.port
    except ValueError:  # a port beyond all ports, half an IPv6 address
        scheme = host = port = None
    if scheme not in ("tls", "tcp", "insecure+tcp") or not host or not port:
        raise PermafrostError(
            f"{scheduler!r} is no scheduler", mend="inline, local:N with N processes, or tls://host:port"
        )
    if scheme == "tcp" and not _loopback(host):
        raise PermafrostError(
            f"{scheduler} is not encrypted, and whoever can reach it can run code on its workers",
            mend="tls://host:port with PERMAFROST_TLS_CA, _CERT and _KEY; or, on a network that you trust, "
            f"insecure+{scheduler}",
        )


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _on_cluster(client: Any, function: Callable[[int], T], pieces: list[int]) -> Iterator[tuple[int, T]]:
    from distributed import as_completed
    from distributed.scheduler import KilledWorker

    waiting = iter(pieces)
    window = AHEAD * max(1, len(client.scheduler_info()["workers"]))
    futures = {client.submit(function, piece, pure=False): piece for piece in islice(waiting, window)}
    running = as_completed(list(futures))
    for future in running:
        piece = futures.pop(future)
        try:
            result = future.result()
        except KilledWorker as error:
            raise PermafrostError(
                f"piece {piece} ended every worker that it was given to ({error.last_worker.name} last)",
                mend="look at the worker's log: out of memory is the usual reason; finished pieces are kept",
            ) from error
        yield piece, result
        following = next(waiting, None)
        if following is not None:
            future = client.submit(function, following, pure=False)
            futures[future] = following
            running.add(future)
