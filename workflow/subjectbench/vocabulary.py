"""Words that all tables share. Light to import, so that planning needs no pandas."""

from __future__ import annotations

from enum import StrEnum

DIMENSIONS = ("preservation", "following", "quality")
"""The three evaluation dimensions of DSH-Bench, section 3.2."""

DIFFICULTIES = ("easy", "medium", "hard")
"""Subject difficulty, DSH-Bench section 3.1, in order."""

SCENARIOS = ("background", "viewpoint", "interaction", "attribute", "style", "imagination")
"""Prompt scenarios, DSH-Bench section 3.1, in the paper's order (BC, VS, IE, AC, SC, IM)."""

PARADIGMS = ("non_editing", "local_editing", "global_editing", "complex_editing")
"""Editing paradigms of UFO-Bench, section 3.2: tier 1, tier 2 (local, global), tier 3."""

TIERS = {"non_editing": 1, "local_editing": 2, "global_editing": 2, "complex_editing": 3}
"""Paradigm to tier: none, one or several dimensions are edited."""

RELEVANCES = ("image_only", "text_only", "text_and_image")
"""Modality class of an atomic unit: which condition says what is right (UFO, section 3.1)."""

LEVELS = ("global_attribute", "part", "setting")
"""Level of an atomic unit. UFO has the first two; ``setting`` is what the prompt asks of
surroundings and action, which UFO never scores."""


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
    REFUSED = "refused"  # a model or judge declined, or a filter stopped it
    UNPARSABLE = "unparsable"  # a judge's reply that says no valid score, or two
    NON_FINITE = "non_finite"  # an embedding or score that is NaN or infinite, or of zero length
    FAILED = "failed"
    NO_FACE = "no_face"  # no face found in the generated picture
    NO_FACE_REFERENCE = "no_face_reference"  # none in the reference: nothing to compare with
    FILTERED = "filtered"
    NOT_APPLICABLE = "not_applicable"
