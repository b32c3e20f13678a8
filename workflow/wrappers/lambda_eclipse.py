"""lambda-Eclipse: its prior in CLIP's space, and Kandinsky 2.2's decoder.

Interface: the repository's README and test_quick.py. Never run here: it needs a GPU and weights.
"""

from __future__ import annotations

from worker import require_subject, serve


def load(setup):
    """Load text encoder, prior and decoder."""
    import torch
    from diffusers import DiffusionPipeline
    from src.pipelines.pipeline_kandinsky_subject_prior import KandinskyPriorPipeline
    from src.priors.lambda_prior_transformer import PriorTransformer
    from transformers import CLIPTextModelWithProjection, CLIPTokenizer

    settings, weights = setup.settings, setup.weights
    prior = KandinskyPriorPipeline.from_pretrained(
        weights["kandinsky_prior"],
        prior=PriorTransformer.from_pretrained(weights["main"]),
        text_encoder=CLIPTextModelWithProjection.from_pretrained(
            weights["clip"], projection_dim=1280, torch_dtype=torch.float32
        ),
        tokenizer=CLIPTokenizer.from_pretrained(weights["clip"]),
    ).to(setup.device)
    decoder = DiffusionPipeline.from_pretrained(weights["kandinsky_decoder"]).to(setup.device)

    def make(job):
        """Without the word in the prompt the reference would not be looked at."""
        require_subject(job)
        embedding, negative = prior(
            raw_data={
                "prompt": job.prompt,
                "subject_images": [job.reference],
                "subject_keywords": [job.subject],
            },
        ).to_tuple()
        return decoder(
            image_embeds=embedding,
            negative_image_embeds=negative,
            num_inference_steps=settings["steps"],
            guidance_scale=settings["guidance_scale"],
            height=job.height,
            width=job.width,
            generator=torch.Generator(setup.device).manual_seed(job.seed),
        ).images[0]

    return make


serve(load)
