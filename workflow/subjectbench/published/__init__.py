"""The printed tables of both papers, and their audit."""
