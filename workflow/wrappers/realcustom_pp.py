"""RealCustom++: ``RealCustomInferencePipeline`` of its repository.

Interface: the repository's inference/pipeline.py and app.py. Never run here: it needs a GPU and
weights.
"""

from __future__ import annotations

import sys
from pathlib import Path

from worker import Unusable, reference, require_subject, serve


def load(setup):
    """Load the pipeline, which expects its weights in the folder ckpts of the repository."""
    given, expected = Path(setup.weights["main"]) / "ckpts", Path("ckpts")
    if not expected.exists():
        expected.symlink_to(given)
    if expected.resolve() != given.resolve():
        raise Unusable(f"{expected.absolute()} is not the card's weights: take it away")
    sys.path.insert(0, str(Path("inference").absolute()))
    from pipeline import RealCustomInferencePipeline

    settings = setup.settings
    pipeline = RealCustomInferencePipeline(
        unet_config=settings["unet_config"],
        unet_checkpoint=settings["unet_checkpoint"],
        realcustom_checkpoint=settings["realcustom_checkpoint"],
        device=setup.device,
    )

    def make(job):
        """The first of the pictures; after them comes a grid of all."""
        require_subject(job)
        start = job.prompt.lower().index(job.subject.lower())
        pictures, _ = pipeline.generation(
            job.prompt,
            reference(job),
            job.prompt[start : start + len(job.subject)],  # it is searched for with its case
            height=job.height,
            width=job.width,
            guidance_scale=settings["guidance_scale"],
            seed=job.seed,
            samples_per_prompt=1,
            mask_scope=settings["mask_scope"],
            mask_strategy=[settings["mask_strategy"]],
            mask_reused_step=settings["mask_reused_step"],
        )
        return pictures[0]

    return make


serve(load)
