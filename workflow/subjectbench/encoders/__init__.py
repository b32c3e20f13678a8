"""Pictures and texts to vectors, all behind ``encoders.base.Encoder``."""
