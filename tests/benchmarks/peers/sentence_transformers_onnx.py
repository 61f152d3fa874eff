"""sentence-transformers with its ONNX backend. It needs libraries that the project does not, so it is a program apart.

PYTHON sentence_transformers_onnx.py MODEL, with the Python of an environment that has `sentence-transformers[onnx]`

Standard input: a JSON list of texts in the first line, and in each further one a file. All texts are encoded, their
vectors written to the file, and `done` is answered; an empty line writes nothing, so that it can be timed.
"""

from __future__ import annotations

import json
import sys

import numpy as np
from sentence_transformers import SentenceTransformer


def main() -> None:
    """Answer line by line until standard input ends."""
    answers, sys.stdout = sys.stdout, sys.stderr  # the export talks
    options = {"provider": "CPUExecutionProvider", "export": True}
    model = SentenceTransformer(sys.argv[1], backend="onnx", device="cpu", model_kwargs=options)
    texts = json.loads(sys.stdin.readline())
    for line in sys.stdin:
        vectors = model.encode(texts, batch_size=32, show_progress_bar=False, convert_to_numpy=True)
        if line.strip():
            np.save(line.strip(), vectors)
        print("done", file=answers, flush=True)


if __name__ == "__main__":
    main()
