"""Words that all tables share. Light to import, so that planning needs no pandas."""

from __future__ import annotations

from enum import StrEnum

DIMENSIONS = ("preservation", "following", "quality")
"""The three evaluation dimensions of DSH-Bench, section 3.2."""

DIFFICULTIES = ("easy", "medium", "hard")
"""Subject difficulty, DSH-Bench section 3.1, in order."""

SCENARIOS = ("background", "viewpoint", "interaction", "attribute", "style", "imagination")
"""Prompt scenarios, DSH-Bench section 3.1, in the paper's order (BC, VS, IE, AC, SC, IM)."""


class Status(StrEnum):
    """Why a row has a value, or has none. Only ``OK`` rows carry one."""

    OK = "ok"
    MISSING = "missing"  # no such file or row
    EMPTY = "empty"  # zero bytes
    UNREADABLE = "unreadable"  # no decoder knows it
    TRUNCATED = "truncated"  # the file ends too early
    OVERSIZE = "oversize"  # more pixels than declared acceptable
    ANIMATED = "animated"  # more than one frame where one is expected
    INVALID_IMAGE = "invalid_image"  # NaN, or one colour everywhere
    BAD_REFERENCE = "bad_reference"  # the case's reference picture has no usable pixels
    EXTERNAL = "external"  # the picture exists elsewhere; only its scores and ratings are here
    REFUSED = "refused"
    UNPARSABLE = "unparsable"
    NON_FINITE = "non_finite"  # an embedding or score that is NaN or infinite, or of zero length
    FAILED = "failed"
    NO_FACE = "no_face"
    FILTERED = "filtered"
    NOT_APPLICABLE = "not_applicable"
