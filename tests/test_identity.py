from __future__ import annotations

import json

import pytest

from pipeline.identity import (
    MANIFEST,
    StaleArtifact,
    canonical_json,
    content_digest,
    file_digests,
    identity_hash,
    read_manifest,
    require_identity,
    write_manifest,
)


def test_hash_depends_on_content_and_not_on_the_order_of_keys():
    assert identity_hash({"a": 1, "b": [2, 3]}) == identity_hash({"b": [2, 3], "a": 1})
    assert identity_hash({"a": 1}) != identity_hash({"a": 2})
    assert identity_hash({"a": [1, 2]}) != identity_hash({"a": [2, 1]})


def test_not_a_number_has_no_canonical_form():
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"a": float("nan")})


def test_manifest_round_trips_and_identifies_the_content(tmp_path):
    (tmp_path / "a").write_text("one")
    written = write_manifest(tmp_path, {"x": 1}, file_digests(tmp_path), note="kept")
    assert read_manifest(tmp_path, "cmd") == written
    before = content_digest(written)
    (tmp_path / "a").write_text("two")
    assert content_digest(write_manifest(tmp_path, {"x": 1}, file_digests(tmp_path))) != before


def test_a_folder_without_manifest_is_not_an_artifact(tmp_path):
    with pytest.raises(StaleArtifact, match=r"never finished[\s\S]*to mend: dvc repro x"):
        read_manifest(tmp_path, "dvc repro x")
    with pytest.raises(StaleArtifact, match="does not exist"):
        read_manifest(tmp_path / "gone", "dvc repro x")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"identity": {}, "identity_sha256": "no", "files": {}}'])
def test_a_manifest_that_is_broken_or_edited_is_refused(tmp_path, content):
    (tmp_path / MANIFEST).write_text(content)
    with pytest.raises(StaleArtifact, match=r"is not a manifest|was edited"):
        read_manifest(tmp_path, "dvc repro x")


def test_an_edited_identity_is_refused(tmp_path):
    write_manifest(tmp_path, {"seed": 1}, {})
    edited = json.loads((tmp_path / MANIFEST).read_text())
    edited["identity"]["seed"] = 2
    (tmp_path / MANIFEST).write_text(json.dumps(edited))
    with pytest.raises(StaleArtifact, match="was edited"):
        read_manifest(tmp_path, "dvc repro x")


def test_a_refusal_names_each_difference_with_both_values(tmp_path):
    manifest = write_manifest(tmp_path, {"task": "a", "settings": {"seed": 1, "gain": 2}}, {})
    require_identity(tmp_path, manifest, {"settings": {"seed": 1}}, "cmd")
    with pytest.raises(StaleArtifact, match=r'settings.seed: found 1, wanted 3[\s\S]*task: found "a", wanted "b"'):
        require_identity(tmp_path, manifest, {"settings": {"seed": 3}, "task": "b"}, "cmd")
