"""SSR-Encoder: ``SSR_encoder`` of its repository on Stable Diffusion 1.5.

Interface: the repository's ssr_encoder/ and infer_text.py. The repository brings its own diffusers,
which comes before any installed one. Never run here: it needs a GPU and weights.
"""

from __future__ import annotations

from worker import reference, serve


def load(setup):
    """Load the base model, then the encoder into it."""
    import torch
    from diffusers import UniPCMultistepScheduler
    from ssr_encoder.ssr_encoder import SSR_encoder
    from utils.pipeline_t2i import StableDiffusionPipeline

    settings = setup.settings
    pipeline = StableDiffusionPipeline.from_pretrained(
        setup.weights["main"], safety_checker=None, torch_dtype=torch.float32
    ).to(setup.device)
    pipeline.scheduler = UniPCMultistepScheduler.from_config(pipeline.scheduler.config)
    model = SSR_encoder(
        pipeline.unet, setup.weights["image_encoder"], setup.device, dtype=torch.float32
    )
    model.load_SSR(setup.files["aligner"], setup.files["layers"])
    model.get_pipe(pipeline)

    def make(job):
        """The query is the subject's word."""
        return model.generate(
            pil_image=reference(job),
            concept=job.subject,
            uncond_concept="",
            prompt=job.prompt,
            negative_prompt=settings["negative_prompt"],
            guidance_scale=settings["guidance_scale"],
            scale=settings["scale"],
            num_samples=1,
            num_inference_steps=settings["steps"],
            seed=job.seed,
            height=job.height,
            width=job.width,
        )[0]

    return make


serve(load)
