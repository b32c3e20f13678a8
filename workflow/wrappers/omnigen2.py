"""OmniGen2: ``OmniGen2Pipeline`` of its repository.

Interface: the repository's inference.py. Never run here: it needs a GPU and weights.
"""

from __future__ import annotations

import ast
from pathlib import Path

from worker import Unusable, reference, serve


def negative_prompt() -> str:
    """Read the default of the repository's own script, which is where the program runs."""
    for node in ast.walk(ast.parse(Path("inference.py").read_text("utf-8"))):
        if isinstance(node, ast.Call) and ast.dump(node).count("'--negative_prompt'"):
            for keyword in node.keywords:
                if keyword.arg == "default" and isinstance(keyword.value, ast.Constant):
                    return str(keyword.value.value)
    raise Unusable("inference.py of the repository has no default for --negative_prompt")


def load(setup):
    """Load pipeline and transformer in bfloat16."""
    import torch
    from omnigen2.models.transformers.transformer_omnigen2 import OmniGen2Transformer2DModel
    from omnigen2.pipelines.omnigen2.pipeline_omnigen2 import OmniGen2Pipeline

    settings, folder = setup.settings, setup.weights["main"]
    pipeline = OmniGen2Pipeline.from_pretrained(
        folder, torch_dtype=torch.bfloat16, trust_remote_code=True
    )
    pipeline.transformer = OmniGen2Transformer2DModel.from_pretrained(
        folder, subfolder="transformer", torch_dtype=torch.bfloat16
    )
    pipeline = pipeline.to(setup.device)
    negative = negative_prompt()

    def make(job):
        """One reference."""
        return pipeline(
            prompt=job.prompt,
            input_images=[reference(job)],
            width=job.width,
            height=job.height,
            num_inference_steps=settings["steps"],
            max_sequence_length=1024,
            text_guidance_scale=settings["text_guidance_scale"],
            image_guidance_scale=settings["image_guidance_scale"],
            cfg_range=(0.0, 1.0),
            negative_prompt=negative,
            num_images_per_prompt=1,
            generator=torch.Generator(setup.device).manual_seed(job.seed),
            output_type="pil",
        ).images[0]

    return make


serve(load)
