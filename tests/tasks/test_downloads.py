"""Downloads through torchvision, which is stood in for: nothing is fetched in tests."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.error import URLError

import pytest

from pipeline.tasks.cifar10 import Cifar10
from pipeline.tasks.faults import MissingSource
from pipeline.tasks.mnist import Mnist
from pipeline.tasks.places import Places
from tests.tasks.files import write_cifar, write_mnist


@pytest.fixture
def torchvision(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A torchvision that lays out files as the real one does, and counts the calls."""
    package, datasets = ModuleType("torchvision"), ModuleType("torchvision.datasets")
    stand_in: Any = datasets
    package.datasets = datasets  # pyright: ignore[reportAttributeAccessIssue]
    stand_in.calls = []

    def mnist(root: Path, download: bool) -> None:
        stand_in.calls.append("MNIST")
        write_mnist(Path(root) / "MNIST" / "raw")

    def cifar(root: Path, download: bool) -> None:
        stand_in.calls.append("CIFAR10")
        write_cifar(Path(root) / "cifar-10-batches-py")

    def fails(root: Path, download: bool) -> None:
        raise URLError("no route to host")

    stand_in.MNIST, stand_in.CIFAR10, stand_in.FashionMNIST = mnist, cifar, fails
    monkeypatch.setitem(sys.modules, "torchvision", package)
    monkeypatch.setitem(sys.modules, "torchvision.datasets", datasets)
    return stand_in


@pytest.mark.parametrize(
    ("settings", "call"), [(Mnist("mnist", 0, "code"), "MNIST"), (Cifar10("cifar10", 0, "lra"), "CIFAR10")]
)
def test_what_is_missing_is_downloaded_once_into_the_cache(
    tmp_path: Path, torchvision: Any, settings: Any, call: str
) -> None:
    for _ in range(2):
        assert len(settings.load(Places(tmp_path / "cache", tmp_path)).splits["test"]) > 0
    assert torchvision.calls == [call]


def test_a_failed_download_says_why_and_what_to_do(
    tmp_path: Path, torchvision: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.tasks.mnist.DEBIAN_FASHION", tmp_path / "debian")
    with pytest.raises(MissingSource, match=r"the download failed: .*no route to host") as caught:
        Mnist("fashion_mnist", 0, "code").load(Places(tmp_path / "cache", tmp_path))
    assert "put train-images-idx3-ubyte, " in str(caught.value)
