"""Per-subject optimisation: one method per module, one loop for all (``base.Tuning``)."""
