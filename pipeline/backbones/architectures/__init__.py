"""How the configs and tensor names of published checkpoints map to `Transformer`, a module for each family."""
