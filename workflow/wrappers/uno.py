"""UNO: ``UNOPipeline`` of its repository on FLUX.1-dev.

Interface: the repository's uno/flux/pipeline.py as its inference.py and app.py call it. Never run
here: it needs a GPU and weights.
"""

from __future__ import annotations

import os
from pathlib import Path

from worker import pin_downloads, reference, serve


def load(setup):
    """Load FLUX.1-dev with UNO's adapter; every file comes from the card's weights."""
    weights = setup.weights
    base, adapter = Path(weights["main"]), Path(weights["adapter"])
    os.environ["FLUX_DEV"] = str(base / "flux1-dev.safetensors")
    os.environ["AE"] = str(base / "ae.safetensors")
    os.environ["LORA"] = str(adapter / "dit_lora.safetensors")
    os.environ["T5"], os.environ["CLIP"] = weights["t5"], weights["clip"]
    pin_downloads(
        {
            "black-forest-labs/FLUX.1-dev": weights["main"],
            "bytedance-research/UNO": weights["adapter"],
            "xlabs-ai/xflux_text_encoders": weights["t5"],
            "openai/clip-vit-large-patch14": weights["clip"],
        }
    )
    import torch
    from uno.flux.pipeline import UNOPipeline, preprocess_ref

    settings = setup.settings
    pipeline = UNOPipeline(
        settings["model"],
        torch.device(setup.device),
        settings["offload"],
        only_lora=True,
        lora_rank=512,
    )

    def make(job):
        """One reference, its longer side as the card says."""
        return pipeline(
            prompt=job.prompt,
            width=job.width,
            height=job.height,
            guidance=settings["guidance_scale"],
            num_steps=settings["steps"],
            seed=job.seed,
            ref_imgs=[preprocess_ref(reference(job), settings["reference_side"])],
            pe=settings["position"],
        )

    return make


serve(load)
