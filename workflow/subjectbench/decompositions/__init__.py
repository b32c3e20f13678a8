"""Decompositions: how a case is split into atomic evaluation units."""
