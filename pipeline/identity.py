"""What an artifact was made from, and the manifest that says it is whole.

An artifact is a folder. Its `manifest.json` is written last, so a folder without one is not an artifact, only
the remains of an interrupted run. The manifest holds the *identity* (everything that decides the bytes), the hash
of that identity, and a digest of every file. Nothing a clock says may stand in it: equal inputs, equal bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from pipeline.errors import PermafrostError

MANIFEST = "manifest.json"


class StaleArtifact(PermafrostError):
    """An artifact that is missing, unfinished, damaged, or made from something else than what was asked for."""


def canonical_json(value: Any) -> bytes:
    """`value` as JSON bytes that depend on its content alone: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def identity_hash(identity: dict[str, Any]) -> str:
    """The sha256 (hex) of an identity's canonical JSON."""
    return hashlib.sha256(canonical_json(identity)).hexdigest()


def file_sha256(path: Path) -> str:
    """The sha256 (hex) of a file's content, read in blocks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_digests(folder: Path, known: dict[str, str] | None = None) -> dict[str, str]:
    """Every file below `folder` but its manifest: path relative to `folder` → sha256 (hex), sorted by path.

    Files whose digest is `known` already are not read again.
    """
    known = known or {}
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p != folder / MANIFEST)
    names = {path.relative_to(folder).as_posix(): path for path in files}
    return {name: known.get(name) or file_sha256(path) for name, path in names.items()}


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file under another name, flush it to the disk, then rename: readers see all of it or nothing."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON with sorted keys, atomically; makes the parent folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    write_atomically(path, (text + "\n").encode())


def write_manifest(folder: Path, identity: dict[str, Any], files: dict[str, str], **extra: Any) -> dict[str, Any]:
    """Write `folder/manifest.json`, the last act in making an artifact, and return it.

    `files` are the digests that `file_digests` gives; `extra` may hold anything but what a clock says.
    """
    manifest = {"identity": identity, "identity_sha256": identity_hash(identity), "files": files, **extra}
    write_json(folder / MANIFEST, manifest)
    return manifest


def read_manifest(folder: Path, made_by: str) -> dict[str, Any]:
    """Read and check `folder/manifest.json`.

    Args:
        folder: the artifact.
        made_by: the command that makes it, for the error message.

    Raises:
        StaleArtifact: there is no manifest, or it is not JSON, or its hash is not that of its identity.
    """
    path = folder / MANIFEST
    if not path.is_file():
        reason = "does not exist" if not folder.exists() else f"has no {MANIFEST}: it was never finished"
        raise StaleArtifact(f"{folder} {reason}", mend=made_by)
    try:
        manifest = json.loads(path.read_bytes())
        sound = manifest["identity_sha256"] == identity_hash(manifest["identity"])
        files = manifest["files"]
    except (ValueError, KeyError, TypeError) as error:
        raise StaleArtifact(f"{path} is not a manifest ({error})", mend=made_by) from error
    if not sound or not isinstance(files, dict):
        raise StaleArtifact(f"{path} was edited: its hash is not that of its identity", mend=made_by)
    return manifest


def content_digest(manifest: dict[str, Any]) -> str:
    """One sha256 (hex) for all the content of an artifact, from its manifest's file digests."""
    return identity_hash(manifest["files"])


def differences(found: Any, wanted: Any, where: str = "") -> list[str]:
    """Where two identities differ, as lines `key: found …, wanted …`; keys that only `found` has are passed over."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        lines = []
        for key in wanted:
            lines += differences(found.get(key), wanted[key], f"{where}.{key}" if where else str(key))
        return lines
    return [] if found == wanted else [f"{where}: found {json.dumps(found)}, wanted {json.dumps(wanted)}"]


def require_identity(folder: Path, manifest: dict[str, Any], wanted: dict[str, Any], made_by: str) -> None:
    """Refuse an artifact whose identity differs from what is `wanted` (a part of an identity will do).

    Raises:
        StaleArtifact: with each differing key, what was found and what is wanted.
    """
    lines = differences(manifest["identity"], wanted)
    if lines:
        raise StaleArtifact(f"{folder} was made from something else:\n    " + "\n    ".join(lines), mend=made_by)
