"""BAGEL: ``InterleaveInferencer`` of its repository, on one GPU.

Interface: the repository's app.py and inferencer.py. Never run here: it needs a GPU and weights.
"""

from __future__ import annotations

from pathlib import Path

from worker import reference, serve


def load(setup):
    """Load the parts one by one, as the repository has no function for it."""
    import torch
    from accelerate import infer_auto_device_map, init_empty_weights, load_checkpoint_and_dispatch
    from data.data_utils import add_special_tokens
    from data.transforms import ImageTransform
    from inferencer import InterleaveInferencer
    from modeling.autoencoder import load_ae
    from modeling.bagel import (
        Bagel,
        BagelConfig,
        Qwen2Config,
        Qwen2ForCausalLM,
        SiglipVisionConfig,
        SiglipVisionModel,
    )
    from modeling.qwen2 import Qwen2Tokenizer

    settings, weights = setup.settings, setup.weights

    def inside(name):
        return str(Path(weights["main"]) / name)

    language = Qwen2Config.from_json_file(inside("llm_config.json"))
    language.qk_norm, language.tie_word_embeddings = True, False
    language.layer_module = "Qwen2MoTDecoderLayer"
    vision = SiglipVisionConfig.from_json_file(inside("vit_config.json"))
    vision.rope, vision.num_hidden_layers = False, vision.num_hidden_layers - 1
    autoencoder, its_config = load_ae(local_path=inside("ae.safetensors"))
    config = BagelConfig(
        visual_gen=True,
        visual_und=True,
        llm_config=language,
        vit_config=vision,
        vae_config=its_config,
        vit_max_num_patch_per_side=70,
        connector_act="gelu_pytorch_tanh",
        latent_patch_size=2,
        max_latent_size=64,
    )
    with init_empty_weights():
        model = Bagel(Qwen2ForCausalLM(language), SiglipVisionModel(vision), config)
        model.vit_model.vision_model.embeddings.convert_conv2d_to_linear(vision, meta=True)
    tokenizer, token_ids, _ = add_special_tokens(Qwen2Tokenizer.from_pretrained(weights["main"]))
    model = load_checkpoint_and_dispatch(
        model,
        checkpoint=inside("ema.safetensors"),
        device_map=infer_auto_device_map(
            model, no_split_module_classes=["Bagel", "Qwen2MoTDecoderLayer"]
        ),
        offload_buffers=True,
        offload_folder=str(Path(setup.folder) / "offload"),
        dtype=torch.bfloat16,
        force_hooks=True,
    ).eval()
    inferencer = InterleaveInferencer(
        model=model,
        vae_model=autoencoder.to(setup.device),
        tokenizer=tokenizer,
        vae_transform=ImageTransform(1024, 512, 16),
        vit_transform=ImageTransform(980, 224, 14),
        new_token_ids=token_ids,
    )

    def make(job):
        """The editing preset; the picture takes the reference's shape."""
        torch.manual_seed(job.seed)
        return inferencer(
            image=reference(job),
            text=job.prompt,
            think=False,
            cfg_text_scale=settings["text_guidance_scale"],
            cfg_img_scale=settings["image_guidance_scale"],
            cfg_interval=settings["guidance_interval"],
            timestep_shift=settings["timestep_shift"],
            num_timesteps=settings["steps"],
            cfg_renorm_min=settings["renorm_min"],
            cfg_renorm_type=settings["renorm_type"],
        )["image"]

    return make


serve(load)
