"""BLIP-Diffusion in diffusers 0.33.1, the last release that supports its pipeline.

Interface: ``BlipDiffusionPipeline`` of diffusers. Never run here: it needs a GPU and weights.
"""

from __future__ import annotations

from worker import reference, serve


def load(setup):
    """Load the pipeline in half precision, or in full on a CPU."""
    import torch
    from diffusers.pipelines import BlipDiffusionPipeline

    settings = setup.settings
    dtype = torch.float16 if setup.device == "cuda" else torch.float32
    pipeline = BlipDiffusionPipeline.from_pretrained(setup.weights["main"], torch_dtype=dtype)
    pipeline = pipeline.to(setup.device)

    def make(job):
        """Lists of one: the pipeline takes batches only."""
        return pipeline(
            [job.prompt],
            reference(job),
            [job.subject],
            [job.subject],
            guidance_scale=settings["guidance_scale"],
            num_inference_steps=settings["steps"],
            neg_prompt=settings["negative_prompt"],
            prompt_strength=settings["prompt_strength"],
            prompt_reps=settings["prompt_repetitions"],
            height=job.height,
            width=job.width,
            generator=torch.Generator().manual_seed(job.seed),
        ).images[0]

    return make


serve(load)
