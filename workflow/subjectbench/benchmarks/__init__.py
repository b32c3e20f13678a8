"""Benchmarks: subjects, prompts and reference pictures, one module per format."""
