"""`python -m pipeline.features inspect|verify|repair PATH`: look at a feature store, check it, mend it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import torch

from pipeline.errors import PermafrostError
from pipeline.features.repair import salvage
from pipeline.features.store import open_features
from pipeline.features.verify import check

store_path = click.argument("path", type=click.Path(path_type=Path))


@click.group(help=__doc__)
def main() -> None:
    """Group of the commands below."""


@main.command()
@store_path
def inspect(path: Path) -> None:
    """Say what the store holds and what it was made from."""
    store = open_features(path)
    rows, readout, layers, width = store.shape
    identity, counts = store.manifest["identity"], store.manifest["counts"]
    click.echo(f"{path}: task {identity['task']}, backbone {identity['backbone']}")
    click.echo(f"  features  {rows} rows × {readout} readout × {layers} layers × {width} wide, {store.dtype}")
    click.echo(f"  layers    {', '.join(store.layers)}")
    splits = ", ".join(f"{count} {name}" for name, count in counts["examples"].items())
    click.echo(f"  examples  {splits}; {counts['unique']} distinct inputs")
    if again := sum(counts.get("float32_rows", {}).values()):
        click.echo(f"  float32   {again} rows, which were not finite in the dtype of the products")
    for layer, error in store.manifest["fidelity"]["relative_error"].items():
        click.echo(f"  fidelity  layer {layer}: relative error {error:.2e} against float32")
    click.echo(f"  made on   {store.manifest['device']}")
    click.echo(f"  identity  {store.manifest['identity_sha256']}")


@main.command()
@store_path
def verify(path: Path) -> None:
    """Check every file's digest; exit with 1 and name what is missing or damaged."""
    store = open_features(path, whole=False)
    faults = check(store)
    for line in faults.lines(store):
        click.echo(line)
    if faults:
        click.echo(f"to mend: python -m pipeline.features repair {path} (computes these shards alone)")
        sys.exit(1)
    click.echo(f"{path} is sound: {len(store.manifest['files'])} files match their digests")


@main.command()
@store_path
@click.option(
    "--work",
    type=click.Path(file_okay=False, path_type=Path),
    default=".permafrost",
    show_default=True,
    envvar="PERMAFROST_WORK",
    help="The work folder of the cache stage.",
)
def repair(path: Path, work: Path) -> None:
    """Compute the damaged or missing shards again, and nothing else; run it where params.yaml is."""
    store = open_features(path, whole=False)
    faults = check(store)
    if not faults:
        click.echo(f"{path} is sound: nothing to do")
        return
    lost = salvage(store, faults, work)
    made, here = store.manifest["versions"], {"torch": torch.__version__, "numpy": np.__version__}
    if made != here:
        click.echo(f"it was made with {made}, here is {here}: every shard is computed again")
    click.echo(f"computing {len(lost)} of {store.manifest['layout']['shards']} shards again: {lost}")
    identity, cost = store.manifest["identity"], Path("data/cost") / f"cache-{path.name}.json"
    kept = cost.read_bytes() if cost.is_file() else None  # the cost of the whole, not of the repair
    command = [sys.executable, "-m", "stages.cache", "--task", identity["task"], "--backbone", identity["backbone"]]
    done = subprocess.run([*command, "--work", str(work)], check=False)
    if kept is not None:
        cost.write_bytes(kept)
    if done.returncode:
        sys.exit(done.returncode)
    mended = open_features(path)
    for line in check(mended).lines(mended):
        click.echo(line)


if __name__ == "__main__":
    try:
        main(standalone_mode=True)
    except PermafrostError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
