"""What the stages' commands share: options that change no number, and one clear message in place of a traceback."""

from __future__ import annotations

import errno
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import click

from pipeline.errors import PermafrostError

if TYPE_CHECKING:
    from pipeline.execution.cluster import Tls
    from pipeline.params import Params

P = ParamSpec("P")

PARAMS = Path("params.yaml")

task_option = click.option("--task", required=True, help="A name under `tasks` in params.yaml.")
backbone_option = click.option("--backbone", required=True, help="A name under `backbones` in params.yaml.")
device_option = click.option(
    "--device",
    default="auto",
    show_default=True,
    envvar="PERMAFROST_DEVICE",
    show_envvar=True,
    help="auto, cpu, cuda or cuda:N.",
)
work_option = click.option(
    "--work",
    type=click.Path(file_okay=False, path_type=Path),
    default=".permafrost",
    show_default=True,
    envvar="PERMAFROST_WORK",
    show_envvar=True,
    help="Folder for unfinished work; what is finished there survives a crash.",
)


scheduler_option = click.option(
    "--scheduler",
    default="inline",
    show_default=True,
    envvar="PERMAFROST_SCHEDULER",
    show_envvar=True,
    help="inline, local:N for N processes, or the address of a Dask scheduler, tls://host:port.",
)


def reports_errors(command: Callable[P, None]) -> Callable[P, None]:
    """Print what the user can mend as a message, with exit code 1; any other exception keeps its traceback."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except PermafrostError as error:
            click.echo(f"error: {error}", err=True)
            sys.exit(1)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            click.echo(f"error: the disk is full{f': {error.filename}' if error.filename else ''}", err=True)
            click.echo("  to mend: free some space, or set PERMAFROST_WORK to another disk, and run again:", err=True)
            click.echo("           what is finished is kept", err=True)
            sys.exit(1)

    return wrapped


def feature_names(params: Params, task: str, backbone: str) -> dict[str, Any]:
    """What params.yaml says of a feature store: the part of its identity that its readers can check."""
    return {
        "task": task,
        "backbone": backbone,
        "backbone_settings": params.plain("backbones", backbone),
        "settings": params.plain("cache"),
    }


def certificates() -> Tls | None:
    """The certificates for a `tls://` scheduler that the environment names, None without them.

    Raises:
        PermafrostError: some of the three files are named and others are not.
    """
    from pipeline.execution.cluster import Tls

    names = ("PERMAFROST_TLS_CA", "PERMAFROST_TLS_CERT", "PERMAFROST_TLS_KEY")
    files = [os.environ.get(name, "") for name in names]
    if not any(files):
        return None
    if not all(files):
        missing = [name for name, file in zip(names, files, strict=True) if not file]
        raise PermafrostError(f"{', '.join(missing)} is not set", mend="name all three files, or none")
    return Tls(*files)
