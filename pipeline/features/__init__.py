"""The feature store: hidden states of a frozen backbone, cached in Zarr.

`store = open_features("data/features/digits-minilm")`, then `store.read("train")` and `store.labels("train")`.
"""

from pipeline.features.store import FeatureStore, open_features

__all__ = ["FeatureStore", "open_features"]
