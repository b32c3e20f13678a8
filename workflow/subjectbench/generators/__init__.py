"""Models under test and controls, all behind ``generators.base.Generator``."""
