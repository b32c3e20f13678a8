"""Emu2-Gen: the custom pipeline that its weights bring along.

Interface: the README of baaivision/Emu, and ``pipeline_emu2_gen.py`` among the weights. Never run
here: it needs GPUs of 80 GB and the weights.
"""

from __future__ import annotations

from pathlib import Path

from worker import Declined, reference, serve


def load(setup):
    """Load encoder, tokenizer and decoder; in bfloat16."""
    import torch
    from diffusers import DiffusionPipeline
    from transformers import AutoModelForCausalLM, AutoTokenizer

    settings, folder = setup.settings, Path(setup.weights["main"])
    options = {"torch_dtype": torch.bfloat16, "use_safetensors": True, "variant": "bf16"}
    pipeline = DiffusionPipeline.from_pretrained(
        str(folder),
        custom_pipeline="pipeline_emu2_gen",
        multimodal_encoder=AutoModelForCausalLM.from_pretrained(
            str(folder / "multimodal_encoder"), trust_remote_code=True, **options
        ),
        tokenizer=AutoTokenizer.from_pretrained(str(folder / "tokenizer")),
        **options,
    )
    pipeline.to(setup.device)

    def make(job):
        """The picture comes first, and the text goes on from it; noise is torch's own."""
        torch.manual_seed(job.seed)
        made = pipeline(
            [reference(job), job.prompt],
            height=job.height,
            width=job.width,
            num_inference_steps=settings["steps"],
            guidance_scale=settings["guidance_scale"],
        )
        if made.nsfw_content_detected:
            raise Declined("the pipeline's safety checker", "filtered")
        return made.image

    return make


serve(load)
