"""Rubrics: what a judge is asked about a sample, and on which scale."""
