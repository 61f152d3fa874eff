"""The families of networks that run as `Transformer`; a new one is a module in `architectures/` and a line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from pipeline.backbones.architectures.bert import bert_spec, bert_tensors, longformer_spec, roberta_spec
from pipeline.backbones.architectures.checkpoint import State
from pipeline.backbones.architectures.gpt2 import gpt2_spec, gpt2_tensors
from pipeline.backbones.architectures.llama import llama_spec, llama_tensors
from pipeline.backbones.architectures.t5 import t5_spec, t5_tensors
from pipeline.backbones.architectures.vit import vit_spec, vit_tensors
from pipeline.backbones.generic import Inside
from pipeline.backbones.spec import Spec
from pipeline.errors import PermafrostError


@dataclass(frozen=True)
class Family:
    """How checkpoints of one `model_type` are read.

    Attributes:
        spec: from config.json.
        tensors: from a checkpoint's names to those of `Transformer`.
        embeddings: where the table of word embeddings may stand; empty when ids are not what it reads.
        prefix: what a checkpoint with a task's head puts in front of the backbone's names.
        inside: of transformers' model; None where it takes no vectors as inputs, so that it cannot be compared with.
    """

    spec: Callable[[dict[str, Any]], Spec]
    tensors: Callable[[State, Spec], State]
    embeddings: tuple[str, ...]
    prefix: str
    inside: Inside | None


WORDS = ("embeddings.word_embeddings.weight",)
ENCODER = Inside("encoder.layer", None)
LLAMA = Family(llama_spec, llama_tensors, ("embed_tokens.weight",), "model.", Inside("layers", "norm"))
FAMILIES = {
    "gpt2": Family(gpt2_spec, gpt2_tensors, ("wte.weight",), "transformer.", Inside("h", "ln_f")),
    "bert": Family(bert_spec, bert_tensors, WORDS, "bert.", ENCODER),
    "roberta": Family(roberta_spec, bert_tensors, WORDS, "roberta.", ENCODER),
    "longformer": Family(longformer_spec, bert_tensors, WORDS, "longformer.", None),
    "vit": Family(vit_spec, vit_tensors, (), "vit.", None),
    "t5": Family(
        t5_spec, t5_tensors, ("shared.weight", "encoder.embed_tokens.weight"), "", Inside("block", "final_layer_norm")
    ),
    "llama": LLAMA,
    "mistral": LLAMA,
    "qwen2": LLAMA,
}


def family_of(config: dict[str, Any]) -> Family | None:
    """The family that a config.json belongs to; None for one that only the generic path reads."""
    return FAMILIES.get(config.get("model_type", ""))


def spec_of(config: dict[str, Any]) -> Spec:
    """The architecture that a config.json describes.

    Raises:
        PermafrostError: its `model_type` is not one of the families, or makes a choice that is not supported.
    """
    return _known(config).spec(config)


def tensors_of(config: dict[str, Any], state: State, spec: Spec) -> State:
    """A checkpoint's tensors under the names of `Transformer`.

    Raises:
        PermafrostError: the checkpoint lacks a tensor that the architecture needs.
    """
    family = _known(config)
    plain = {name.removeprefix(family.prefix): tensor for name, tensor in state.items()}
    try:
        return family.tensors(plain, spec)
    except KeyError as error:
        raise PermafrostError(
            f"the checkpoint has no tensor {error}: it is not a whole {config['model_type']}"
        ) from error


def embedding_of(config: dict[str, Any], state: State) -> Tensor:
    """A checkpoint's table of word embeddings, `(id, width)`.

    Raises:
        PermafrostError: it has none.
    """
    family = _known(config)
    plain = {name.removeprefix(family.prefix): tensor for name, tensor in state.items()}
    found = [plain[name] for name in family.embeddings if name in plain]
    if not found:
        wanted = f"has no tensor {family.embeddings[0]!r}" if family.embeddings else "is of a family without words"
        raise PermafrostError(f"the checkpoint {wanted}: it cannot read ids of its tokenizer")
    return found[0]


def words_of(config: dict[str, Any]) -> int:
    """How many ids the table of an architecture's word embeddings has.

    Raises:
        PermafrostError: it has no such table.
    """
    if not _known(config).embeddings or "vocab_size" not in config:
        raise PermafrostError(f"a {config['model_type']} is of a family without words: it has no table for ids")
    return config["vocab_size"]


def _known(config: dict[str, Any]) -> Family:
    family = family_of(config)
    if family is None:
        raise PermafrostError(f"model_type {config.get('model_type')!r} is not supported; known: {', '.join(FAMILIES)}")
    return family
