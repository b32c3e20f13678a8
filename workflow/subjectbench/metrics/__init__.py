"""Per-sample scores, all behind ``metrics.base.Metric``."""
