"""Asks a peer that lives in an environment of its own."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

import click
import numpy as np
import torch
from torch import Tensor


class OnnxPeer:
    """sentence-transformers' ONNX backend in a process of its own; a call encodes the texts once."""

    def __init__(self, python: Path, model: Path, texts: list[str]) -> None:
        program = Path(__file__).with_name("sentence_transformers_onnx.py")
        self._command, self._texts = [str(python), str(program), str(model)], json.dumps(texts)

    def __enter__(self) -> OnnxPeer:
        """Start it."""
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._say(self._texts)
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()

    def __call__(self, file: str = "") -> None:
        """Encode; write the vectors to `file`, if one is named."""
        self._say(file)
        assert self._process.stdout
        if self._process.stdout.readline() != "done\n":
            raise click.ClickException(f"{self._command[0]} has no sentence-transformers[onnx], or failed: see above")

    def vectors(self) -> Tensor:
        """What it encodes the texts to."""
        with tempfile.TemporaryDirectory() as folder:
            self(f"{folder}/vectors.npy")
            return torch.from_numpy(np.load(f"{folder}/vectors.npy"))

    def _say(self, line: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
