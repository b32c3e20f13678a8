"""Raters: judgements by people, or by a declared simulation of them."""
