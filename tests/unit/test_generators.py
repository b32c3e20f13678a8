"""What all generators share: how a prompt becomes a model's text."""

from __future__ import annotations

import pytest

from subjectbench.config import Strict, validate
from subjectbench.errors import InputError
from subjectbench.generators.base import Job, Template


class Params(Strict):
    template: Template


JOB = Job("c-s0", "s", "mug", "A {odd} mug", None, 0, {})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{prompt}", "A {odd} mug"),
        ("a {subject}. {prompt}", "a mug. A {odd} mug"),
        ("{{{prompt}}}", "{A {odd} mug}"),
    ],
)
def test_a_template_weaves_prompt_and_subject(template: str, text: str) -> None:
    assert JOB.text(validate(Params, {"template": template}, "card").template) == text


@pytest.mark.parametrize(
    "template", ["", "a {subject}", "{prompt} {word}", "{prompt.x}", "{}", "{prompt", "{prompt:d}"]
)
def test_a_template_that_cannot_be_filled_stops_while_planning(template: str) -> None:
    with pytest.raises(InputError, match="card: template"):
        validate(Params, {"template": template}, "card")
