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
    """As many pieces under way as the workers of the moment can use, so that one that joins late gets its share.

    After an error nothing new begins, but what is under way is given out before the error is: it may be hours of work.
    """
    from distributed import as_completed

    waiting, running, under_way = iter(pieces), as_completed(), {}
    fault: Exception | None = None

    def submit() -> None:
        workers = len(client.scheduler_info()["workers"])
        for piece in islice(waiting, max(0, AHEAD * max(1, workers) - len(under_way))):
            future = client.submit(function, piece, pure=False)
            under_way[future] = piece
            running.add(future)

    submit()
    for future in running:
        piece = under_way.pop(future)
        try:
            result = future.result()
        except Exception as error:
            fault = fault or _named(error, piece)
        else:
            yield piece, result
        if fault is None:
            submit()
    if fault is not None:
        raise fault


def _named(error: Exception, piece: int) -> Exception:
    """What to tell the user of a piece's error."""
    from distributed.scheduler import KilledWorker

    if not isinstance(error, KilledWorker):
        return error
    named = PermafrostError(
        f"piece {piece} ended every worker that it was given to ({error.last_worker.name} last)",
        mend="look at the worker's log: out of memory is the usual reason; finished pieces are kept",
    )
    named.__cause__ = error
    return named
