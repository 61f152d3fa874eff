"""Finds a backbone's folder, checks its weights, and reads them without running any code that they bring."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pipeline.backbones.settings import HubSource, PackageSource, PretrainedSource
from pipeline.errors import PermafrostError
from pipeline.identity import file_sha256, identity_hash

PATTERNS = ("*.safetensors", "pytorch_model*.bin")
"""Files that may hold weights, the preferred first."""


class WeightsError(PermafrostError):
    """Weights that are not there, not complete, or not the ones that params.yaml names."""


def locate(source: PretrainedSource) -> Path:
    """The folder that holds config.json and the weights; a hub's is downloaded first.

    Raises:
        WeightsError: the package is not installed, the folder is missing, or the hub cannot be reached.
    """
    if isinstance(source, HubSource):
        return _download(source)
    folder = _package_folder(source) if isinstance(source, PackageSource) else Path(source.path).expanduser()
    if not (folder / "config.json").is_file():
        raise WeightsError(
            f"{folder} is not a backbone's folder: it has no config.json",
            mend="give `path` a folder that save_pretrained() wrote (config.json and model.safetensors)",
        )
    return folder


def _package_folder(source: PackageSource) -> Path:
    spec = importlib.util.find_spec(source.package)
    if spec is None or not spec.submodule_search_locations:
        raise WeightsError(f"the package {source.package!r} is not installed", mend="make venv")
    return Path(spec.submodule_search_locations[0]) / source.folder


def _download(source: HubSource) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        wanted = ["config.json", "tokenizer*", "vocab*", "merges.txt", "*.safetensors", "*.safetensors.index.json"]
        return Path(snapshot_download(source.id, revision=source.revision, allow_patterns=wanted))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise WeightsError(
            f"cannot download {source.id} at {source.revision}: {type(error).__name__}",
            mend="connect to the hub, or download the folder elsewhere and use `source: path`",
        ) from error


def weight_files(folder: Path) -> list[Path]:
    """The files that hold the weights, sorted.

    Raises:
        WeightsError: there are none.
    """
    for pattern in PATTERNS:
        files = sorted(folder.glob(pattern))
        if files:
            return files
    raise WeightsError(f"{folder} holds no weights ({' or '.join(PATTERNS)})", mend="copy them there")


def weights_sha256(folder: Path) -> str:
    """The sha256 of the weights: the file's own when there is one, else that of the list of names and digests."""
    digests = {path.name: file_sha256(path) for path in weight_files(folder)}
    return next(iter(digests.values())) if len(digests) == 1 else identity_hash(digests)


def check_sha256(folder: Path, wanted: str | None) -> str:
    """The weights' sha256, compared with the one that params.yaml gives, if any.

    Raises:
        WeightsError: they differ.
    """
    found = weights_sha256(folder)
    if wanted is not None and found != wanted:
        raise WeightsError(
            f"the weights in {folder} are not those that params.yaml names:\n    sha256 found  {found}\n"
            f"    sha256 wanted {wanted}",
            mend="restore the weights, or put the found value into params.yaml if you mean them",
        )
    return found


def read_config(folder: Path) -> dict[str, Any]:
    """config.json.

    Raises:
        WeightsError: it is not JSON.
    """
    try:
        return json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except ValueError as error:
        raise WeightsError(f"{folder / 'config.json'} is not JSON: {error}", mend="copy the folder again") from error


def read_state(folder: Path) -> dict[str, Tensor]:
    """All tensors by name, from safetensors, or from a `.bin` read as tensors only (never unpickled).

    Raises:
        WeightsError: a file is truncated, damaged, or holds more than tensors.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    state: dict[str, Tensor] = {}
    for path in weight_files(folder):
        try:
            safe = path.suffix == ".safetensors"
            state |= load_file(path) if safe else torch.load(path, map_location="cpu", weights_only=True)
        except (SafetensorError, RuntimeError, EOFError, ValueError) as error:
            raise WeightsError(f"{path} cannot be read: {error}", mend="copy or download the file again") from error
        except Exception as error:  # pickle.UnpicklingError and whatever else a hostile file provokes
            raise WeightsError(f"{path} holds more than tensors: {error}", mend="convert it to safetensors") from error
    return state
