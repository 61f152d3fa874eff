"""A Dask client on processes of this machine or on a running cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pipeline.errors import PermafrostError

WAIT = "30s"
"""How long a scheduler may take to answer."""


@dataclass(frozen=True)
class Tls:
    """Files in PEM form: the authority that both sides trust, and this side's certificate and key."""

    ca: str
    certificate: str
    key: str


@contextmanager
def connect(scheduler: str, tls: Tls | None) -> Iterator[Any]:
    """A client of `local:N` (made here and closed afterwards), or of the scheduler at an address, with a worker.

    A scheduler without workers is waited for, since a queue may give them late; this is said.

    Raises:
        PermafrostError: `tls://` without certificates or with files that are none, or nothing answers.
    """
    import dask.config
    from distributed import Client, LocalCluster, Security

    if scheduler.startswith("local:"):
        # One thread a worker: the threads of a product are a parameter, set by the function that runs there.
        options = {"n_workers": int(scheduler[6:]), "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
        quiet = {"distributed.logging.distributed": "error", "distributed.comm.timeouts.connect": WAIT}
        with dask.config.set(quiet), LocalCluster(host="127.0.0.1", **options) as cluster, Client(cluster) as client:
            yield client
        return
    address, security = scheduler.removeprefix("insecure+"), None
    if address.startswith("tls://"):
        if tls is None:
            raise PermafrostError(
                f"{scheduler} needs certificates",
                mend="set PERMAFROST_TLS_CA, PERMAFROST_TLS_CERT and PERMAFROST_TLS_KEY",
            )
        files = {"tls_ca_file": tls.ca, "tls_client_cert": tls.certificate, "tls_client_key": tls.key}
        security = Security(require_encryption=True, **files)
        try:
            security.get_connection_args("client")
        except OSError as error:  # ssl.SSLError too
            raise PermafrostError(
                f"{tls.ca}, {tls.certificate} and {tls.key} cannot be used: {error}",
                mend="PEM files in PERMAFROST_TLS_CA, PERMAFROST_TLS_CERT and PERMAFROST_TLS_KEY",
            ) from error
    try:
        client = Client(address, security=security, timeout=WAIT)
    except OSError as error:
        raise PermafrostError(f"no scheduler answers at {address} within {WAIT}", mend="is it running?") from error
    with client:
        client.get_versions(check=True)
        if not client.scheduler_info()["workers"]:
            print(f"{address} has no workers yet: waiting for the first", flush=True)
            client.wait_for_workers(1)
        yield client


def on_this_machine(scheduler: str) -> bool:
    """Whether a scheduler's workers are all here: `inline` or `local:N`."""
    return scheduler == "inline" or scheduler.startswith("local:")
