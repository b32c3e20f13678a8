"""Judges: backends behind one contract, transcripts, the engine between, and reply parsers."""
