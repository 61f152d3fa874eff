from __future__ import annotations

import pytest
from filelock import FileLock

import pipeline.work
from pipeline.work import WorkBusy, WorkFolder, work_key


def test_changed_code_voids_unfinished_work(tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline.work, "__file__", str(tmp_path / "work.py"))
    (tmp_path / "features").mkdir()
    (tmp_path / "tasks").mkdir()
    module = tmp_path / "features/write.py"
    module.write_text("a = 1\n")
    before = work_key({"seed": 0}, ("features",))
    (tmp_path / "tasks/digits.py").write_text("b = 1\n")
    assert work_key({"seed": 0}, ("features",)) == before, "another package's code decides nothing here"
    assert work_key({"seed": 1}, ("features",)) != before
    module.write_text("a = 2\n")
    assert work_key({"seed": 0}, ("features",)) != before
    before = work_key({"seed": 0}, ("features",))
    (tmp_path / "features/deeper").mkdir()
    (tmp_path / "features/deeper/read.py").write_text("c = 1\n")
    assert work_key({"seed": 0}, ("features",)) != before, "folders within a package are its code too"


def test_the_packages_named_by_cache_and_finetune_exist():
    from pipeline.features import workspace
    from pipeline.finetune import checkpoints

    for package in {*workspace.CODE, *checkpoints.CODE}:
        assert work_key({}, (package,)) != work_key({}, ())


def test_leftovers_of_a_killed_writer_are_swept_away(tmp_path):
    for partial in (tmp_path / "one/a.partial", tmp_path / "two/b.partial/c"):
        partial.parent.mkdir(parents=True)
        partial.touch()
    (tmp_path / "one/whole").touch()
    with WorkFolder(tmp_path, "one") as work:
        assert [path.name for path in tmp_path.rglob("*.partial*")] == []
        assert (work.folder / "whole").is_file()
        work.prune()
        assert not (tmp_path / "two").exists()
        work.discard()
        assert not work.folder.exists()


def test_a_second_process_is_refused_and_told_what_to_do(tmp_path):
    with (
        FileLock(tmp_path / "lock"),
        pytest.raises(WorkBusy, match="wait for it") as refused,
        WorkFolder(tmp_path, "k"),
    ):
        pass
    assert str(tmp_path) in str(refused.value)
    with WorkFolder(tmp_path, "k"):
        pass
