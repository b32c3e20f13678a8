"""MS-Diffusion: ``MSAdapter`` of its repository on SDXL.

Interface: the repository's inference.py. Never run here: it needs a GPU and weights.
"""

from __future__ import annotations

from pathlib import Path

from worker import reference, serve


def load(setup):
    """Load SDXL, CLIP's picture encoder, the resampler and the adapter."""
    import torch
    from diffusers import StableDiffusionXLPipeline
    from msdiffusion.models.model import MSAdapter
    from msdiffusion.models.projection import Resampler
    from msdiffusion.utils import get_eot_idx, get_phrase_idx
    from transformers import CLIPImageProcessor, CLIPVisionModelWithProjection

    settings, weights, half = setup.settings, setup.weights, torch.float16
    pipeline = StableDiffusionXLPipeline.from_pretrained(
        weights["main"], torch_dtype=half, add_watermarker=False
    ).to(setup.device)
    encoder = CLIPVisionModelWithProjection.from_pretrained(weights["image_encoder"])
    encoder = encoder.to(setup.device, dtype=half)
    resampler = Resampler(
        dim=1280,
        depth=4,
        dim_head=64,
        heads=20,
        num_queries=16,
        embedding_dim=encoder.config.hidden_size,
        output_dim=pipeline.unet.config.cross_attention_dim,
        ff_mult=4,
        latent_init_mode="grounding",
        phrase_embeddings_dim=pipeline.text_encoder.config.projection_dim,
    ).to(setup.device, dtype=half)
    adapter = MSAdapter(
        pipeline.unet,
        resampler,
        ckpt_path=str(Path(weights["adapter"]) / "ms_adapter.bin"),
        device=setup.device,
        num_tokens=16,
    )
    adapter.to(setup.device, dtype=half)

    def make(job):
        """One reference in one box; its phrase is the subject's word."""
        place = get_phrase_idx(pipeline.tokenizer, job.subject, job.prompt)[0]
        picture = adapter.generate(
            pipe=pipeline,
            pil_images=[[reference(job).resize((512, 512))]],
            num_samples=1,
            num_inference_steps=settings["steps"],
            guidance_scale=settings["guidance_scale"],
            seed=job.seed,
            prompt=[job.prompt],
            scale=settings["scale"],
            image_encoder=encoder,
            image_processor=CLIPImageProcessor(),
            boxes=[[settings["box"]]],
            image_proj_type="resampler",
            image_encoder_type="clip",
            phrases=[[job.subject]],
            drop_grounding_tokens=[0],
            phrase_idxes=[[place]],
            eot_idxes=[[get_eot_idx(pipeline.tokenizer, job.prompt)]],
            mask_threshold=settings["mask_threshold"],
            start_step=settings["start_step"],
            height=job.height,
            width=job.width,
        )[0]
        return picture, {"subject_in_prompt": list(place) != [0, 0]}

    return make


serve(load)
