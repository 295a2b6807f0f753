"""Beliefs over the task prior, one model a file."""

from adats.meta.gaussian import GaussianMeta
from adats.meta.linear import LinearMeta
from adats.meta.mixture import MixtureMeta
from adats.meta.models import ModelMixture

__all__ = ["GaussianMeta", "LinearMeta", "MixtureMeta", "ModelMixture"]
