"""The content-addressed store: what an artifact is, where it lies, how it gets there whole."""

from subjectbench.store.artifact import Artifact, Plan
from subjectbench.store.folder import Partial, Store

__all__ = ["Artifact", "Partial", "Plan", "Store"]
