"""Small diffusers checkpoints with random weights, saved as real ones are."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import torch
from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    FlowMatchEulerDiscreteScheduler,
    FluxFillPipeline,
    FluxKontextPipeline,
    FluxPipeline,
    FluxTransformer2DModel,
    StableDiffusionPipeline,
    StableDiffusionXLPipeline,
    UNet2DConditionModel,
)
from diffusers.pipelines.stable_diffusion import StableDiffusionSafetyChecker
from peft import LoraConfig
from safetensors.torch import save_file
from transformers import (
    CLIPConfig,
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTextModelWithProjection,
    CLIPTokenizer,
    CLIPVisionConfig,
    CLIPVisionModelWithProjection,
    T5Config,
    T5EncoderModel,
    T5Tokenizer,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

LETTERS = string.ascii_letters + string.digits + string.punctuation
SMALL = {"hidden_size": 32, "intermediate_size": 37, "num_attention_heads": 4}
SMALL |= {"num_hidden_layers": 2, "projection_dim": 32}


def loud(model: Any, seed: int, std: float = 0.15) -> Any:
    """Give a model random weights large enough that every input shows in its output."""
    generator = torch.Generator().manual_seed(seed)
    for value in model.parameters():
        if value.ndim > 1:
            value.data = torch.randn(value.shape, generator=generator) * std
    return model.eval()


def clip_tokenizer() -> CLIPTokenizer:
    tokens = [*LETTERS, *(f"{c}</w>" for c in LETTERS), "<|startoftext|>", "<|endoftext|>"]
    return CLIPTokenizer(vocab={t: i for i, t in enumerate(tokens)}, merges=[], model_max_length=77)


def _text(tokenizer: CLIPTokenizer, projected: bool = False, hidden: int = 32) -> Any:
    ids = {n: getattr(tokenizer, n) for n in ("bos_token_id", "eos_token_id", "pad_token_id")}
    config = CLIPTextConfig(**{**SMALL, "hidden_size": hidden}, vocab_size=len(tokenizer), **ids)
    return loud((CLIPTextModelWithProjection if projected else CLIPTextModel)(config), 1)


def image_encoder(folder: Path, projection: int = 32) -> None:
    sizes = {**SMALL, "projection_dim": projection}
    config = CLIPVisionConfig(**sizes, image_size=32, patch_size=8)
    loud(CLIPVisionModelWithProjection(config), 2).save_pretrained(folder)


def _processor(size: int = 32) -> CLIPImageProcessorPil:
    sizes = {"height": size, "width": size}
    return CLIPImageProcessorPil(size={"shortest_edge": size}, crop_size=sizes)


def _vae(channels: tuple[int, ...], latent: int, **options: Any) -> AutoencoderKL:
    count = len(channels)
    vae = AutoencoderKL(
        block_out_channels=channels,
        down_block_types=("DownEncoderBlock2D",) * count,
        up_block_types=("UpDecoderBlock2D",) * count,
        norm_num_groups=1,
        latent_channels=latent,
        **options,
    )
    # Not so loud that pictures are black and white.
    return loud(vae, 3, 0.1)


def _ddim() -> DDIMScheduler:
    return DDIMScheduler(
        beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", clip_sample=False
    )


def save_sd(folder: Path, checker: bool = False) -> Path:
    """Stable Diffusion 1.x: 16 px pictures, cross-attention of width 8; perhaps its checker."""
    tokenizer = clip_tokenizer()
    unet = UNet2DConditionModel(
        block_out_channels=(4, 8),
        layers_per_block=1,
        sample_size=8,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=8,
        attention_head_dim=2,
        norm_num_groups=2,
    )
    safety = None
    if checker:
        vision = {**SMALL, "image_size": 32, "patch_size": 8}
        safety = StableDiffusionSafetyChecker(
            CLIPConfig(vision_config=vision, projection_dim=32)
        ).eval()
    StableDiffusionPipeline(
        vae=_vae((4, 8), 4),
        text_encoder=_text(tokenizer, hidden=8),
        tokenizer=tokenizer,
        unet=loud(unet, 4),
        scheduler=_ddim(),
        safety_checker=safety,
        feature_extractor=_processor() if checker else None,
        requires_safety_checker=checker,
    ).save_pretrained(folder)
    return folder


def save_sdxl(folder: Path) -> Path:
    """Stable Diffusion XL: 16 px pictures, two text encoders."""
    tokenizer = clip_tokenizer()
    unet = UNet2DConditionModel(
        block_out_channels=(4, 8),
        layers_per_block=1,
        sample_size=8,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=(2, 4),
        use_linear_projection=True,
        addition_embed_type="text_time",
        addition_time_embed_dim=8,
        transformer_layers_per_block=(1, 2),
        projection_class_embeddings_input_dim=80,
        cross_attention_dim=64,
        norm_num_groups=1,
    )
    StableDiffusionXLPipeline(
        vae=_vae((4, 8), 4),
        text_encoder=_text(tokenizer),
        text_encoder_2=_text(tokenizer, projected=True),
        tokenizer=tokenizer,
        tokenizer_2=tokenizer,
        unet=loud(unet, 4),
        scheduler=_ddim(),
    ).save_pretrained(folder)
    return folder


def ip_tensors(base: Path, width: int = 32) -> dict[str, torch.Tensor]:
    """An IP-Adapter for a base, by the names of the published files."""
    unet = UNet2DConditionModel.from_pretrained(base / "unet")
    cross = unet.config.cross_attention_dim
    generator = torch.Generator().manual_seed(5)

    def noise(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * 0.5

    out = {
        "image_proj.proj.weight": noise(4 * cross, width),
        "image_proj.proj.bias": noise(4 * cross),
    }
    out |= {"image_proj.norm.weight": torch.ones(cross), "image_proj.norm.bias": noise(cross)}
    for index, name in enumerate(unet.attn_processors):
        if name.endswith("attn2.processor"):
            hidden = unet.get_submodule(name.removesuffix(".processor")).to_k.out_features
            for part in ("to_k_ip", "to_v_ip"):
                out[f"ip_adapter.{index}.{part}.weight"] = noise(hidden, cross)
    return out


def save_ip_adapter(folder: Path, base: Path, file: str, encoder: str, width: int = 32) -> Path:
    """An IP-Adapter with its image encoder; as safetensors, or nested as the ``.bin`` files."""
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = ip_tensors(base, width)
    if path.suffix == ".safetensors":
        save_file(tensors, path)
    else:
        nested: dict[str, Any] = {"image_proj": {}, "ip_adapter": {}}
        for key, value in tensors.items():
            part, _, name = key.partition(".")
            nested[part][name] = value
        torch.save(nested, path)
    image_encoder(folder / encoder, width)
    return path


def t5_tokenizer() -> T5Tokenizer:
    pieces = ["<pad>", "</s>", "<unk>", "\u2581", *LETTERS]
    return T5Tokenizer(vocab=[(p, -float(i)) for i, p in enumerate(pieces)], extra_ids=0)


FLUX = {"text": FluxPipeline, "kontext": FluxKontextPipeline, "fill": FluxFillPipeline}


def save_flux(folder: Path, kind: str = "text") -> Path:
    """FLUX: text to picture, ``kontext`` or ``fill``; 16 px pictures have 8 x 8 latents."""
    tokenizer, tokenizer_2 = clip_tokenizer(), t5_tokenizer()
    latent = 2
    inputs = 4 * latent if kind != "fill" else 4 * latent * 2 + 4 * 4
    transformer = FluxTransformer2DModel(
        patch_size=1,
        in_channels=inputs,
        out_channels=4 * latent,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        axes_dims_rope=(4, 4, 8),
        guidance_embeds=kind != "text",
    )
    t5 = T5Config(
        vocab_size=len(tokenizer_2), d_model=32, d_kv=8, d_ff=37, num_layers=2, num_heads=4
    )
    FLUX[kind](
        scheduler=FlowMatchEulerDiscreteScheduler(),
        vae=_vae(
            (4, 4),
            latent,
            use_quant_conv=False,
            use_post_quant_conv=False,
            shift_factor=0.0609,
            scaling_factor=1.5035,
        ),
        text_encoder=_text(tokenizer),
        tokenizer=tokenizer,
        text_encoder_2=loud(T5EncoderModel(t5), 6),
        tokenizer_2=tokenizer_2,
        transformer=loud(transformer, 7),
    ).save_pretrained(folder)
    return folder


def save_lora(pipeline: Any, file: Path, part: str) -> Path:
    """A LoRA of rank 2 for a pipeline's denoiser, saved by diffusers' own function."""
    from peft import get_peft_model_state_dict

    model = getattr(pipeline, part)
    modules = ["to_q", "to_k", "to_v", "to_out.0"]
    model.add_adapter(LoraConfig(r=2, lora_alpha=2, target_modules=modules), adapter_name="made")
    generator = torch.Generator().manual_seed(8)
    state = {
        key: torch.randn(value.shape, generator=generator)
        for key, value in get_peft_model_state_dict(model, adapter_name="made").items()
    }
    model.delete_adapters("made")
    pipeline.save_lora_weights(file.parent, **{f"{part}_lora_layers": state}, weight_name=file.name)
    return file


def save_omnigen(folder: Path) -> Path:
    """OmniGen: 16 px pictures; building it needs torchvision."""
    from diffusers import OmniGenPipeline, OmniGenTransformer2DModel
    from transformers import LlamaTokenizer

    tokens = ["<unk>", "<s>", "</s>", "\u2581", *LETTERS]
    transformer = OmniGenTransformer2DModel(
        hidden_size=16,
        num_attention_heads=4,
        num_key_value_heads=4,
        intermediate_size=32,
        num_layers=1,
        in_channels=4,
        time_step_dim=4,
        rope_scaling={"long_factor": list(range(1, 3)), "short_factor": list(range(1, 3))},
    )
    OmniGenPipeline(
        transformer=loud(transformer, 9),
        vae=_vae((4, 4, 4, 4), 4),
        scheduler=FlowMatchEulerDiscreteScheduler(invert_sigmas=True, num_train_timesteps=1),
        tokenizer=LlamaTokenizer(vocab={t: i for i, t in enumerate(tokens)}, merges=[]),
    ).save_pretrained(folder)
    return folder


def save_qwen(folder: Path) -> Path:
    """Qwen-Image-Edit "plus"; its processor needs torchvision."""
    from diffusers import (
        AutoencoderKLQwenImage,
        QwenImageEditPlusPipeline,
        QwenImageTransformer2DModel,
    )
    from transformers import (
        Qwen2_5_VLConfig,
        Qwen2_5_VLForConditionalGeneration,
        Qwen2VLProcessor,
        Qwen2VLVideoProcessor,
    )
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    from tests.conftest import _save_qwen_tokenizer

    (folder / "tokenizer").mkdir(parents=True)
    tokenizer = _save_qwen_tokenizer(folder / "tokenizer")
    token = tokenizer.convert_tokens_to_ids
    text = {"vocab_size": len(tokenizer), "hidden_size": 16, "intermediate_size": 16}
    text |= {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2}
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [1, 1, 2]}
    vision = {"depth": 2, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2}
    config = Qwen2_5_VLConfig(
        text_config={**text, "rope_parameters": rope},
        vision_config={**vision, "out_hidden_size": 16},
        image_token_id=token("<|image_pad|>"),
        video_token_id=token("<|video_pad|>"),
        vision_start_token_id=token("<|vision_start|>"),
        vision_end_token_id=token("<|vision_end|>"),
    )
    QwenImageEditPlusPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(),
        vae=loud(
            AutoencoderKLQwenImage(
                base_dim=24,
                z_dim=4,
                dim_mult=[1, 2, 4],
                num_res_blocks=1,
                temperal_downsample=[False, True],
                latents_mean=[0.0] * 4,
                latents_std=[1.0] * 4,
            ),
            10,
            0.1,
        ),
        text_encoder=loud(Qwen2_5_VLForConditionalGeneration(config), 11),
        tokenizer=tokenizer,
        processor=Qwen2VLProcessor(
            Qwen2VLImageProcessorPil(),
            tokenizer,
            Qwen2VLVideoProcessor(),
            chat_template=tokenizer.chat_template,
        ),
        transformer=loud(
            QwenImageTransformer2DModel(
                patch_size=2,
                in_channels=16,
                out_channels=4,
                num_layers=2,
                attention_head_dim=16,
                num_attention_heads=3,
                joint_attention_dim=16,
                axes_dims_rope=(8, 4, 4),
            ),
            12,
        ),
    ).save_pretrained(folder)
    return folder


SAVE = {"omnigen": save_omnigen, "qwen": save_qwen}
