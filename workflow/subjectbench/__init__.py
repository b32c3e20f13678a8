"""SubjectBench: reproducible evaluation of subject-driven text-to-image models."""

__version__ = "0.1.0"
