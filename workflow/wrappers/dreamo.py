"""DreamO: ``Generator`` and its pipeline, as the repository's app.py calls them.

Interface: the repository's dreamo_generator.py and app.py. Never run here: it needs a GPU and
weights.
"""

from __future__ import annotations

from pathlib import Path

from worker import pin_downloads, reference, serve


def load(setup):
    """Load all models; the repository looks for the base model in ./models."""
    weights, settings = setup.weights, setup.settings
    base = Path("models/black-forest-labs/FLUX.1-dev")
    base.parent.mkdir(parents=True, exist_ok=True)
    if base.is_symlink():
        base.unlink()
    base.symlink_to(weights["main"])
    pin_downloads(
        {
            "ByteDance/DreamO": weights["adapter"],
            "alimama-creative/FLUX.1-Turbo-Alpha": weights["turbo"],
            "PramaLLC/BEN2": weights["background"],
        }
    )
    import numpy
    import torch
    from dreamo_generator import Generator

    generator = Generator(
        version=settings["version"],
        offload=settings["offload"],
        no_turbo=settings["no_turbo"],
        quant=settings["quantisation"],
        device=setup.device,
    )

    @torch.inference_mode()
    def make(job):
        """One reference, one task."""
        conditions, _, seed = generator.pre_condition(
            ref_images=[numpy.array(reference(job))],
            ref_tasks=[settings["task"]],
            ref_res=settings["reference_resolution"],
            seed=job.seed,
        )
        return generator.dreamo_pipeline(
            prompt=job.prompt,
            width=job.width,
            height=job.height,
            num_inference_steps=settings["steps"],
            guidance_scale=settings["guidance_scale"],
            ref_conds=conditions,
            generator=torch.Generator("cpu").manual_seed(seed),
            true_cfg_scale=1,
            true_cfg_start_step=0,
            true_cfg_end_step=0,
            negative_prompt="",
            neg_guidance_scale=3.5,
            first_step_guidance_scale=settings["guidance_scale"],
        ).images[0]

    return make


serve(load)
