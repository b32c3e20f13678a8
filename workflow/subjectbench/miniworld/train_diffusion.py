"""Recipe of the miniworld's image generator: a small Stable Diffusion with an IP-Adapter.

    python -m subjectbench.miniworld.train_diffusion --out workflow/weights/mini_diffusion

The classes are diffusers' own and the folder has the layout of a full checkpoint, so the code that
loads Stable Diffusion 1.5 and h94/IP-Adapter loads this too: see ``load_pipeline``. Text and
reference pictures are read by the frozen towers of ``mini_clip``; the autoencoder, the UNet and the
adapter are trained here, on drawn pictures whose subjects never look like a held-out one.

The recipe stops after ``--minutes`` and goes on from its work folder when it is called again.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import platform
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import PIL
import torch
import transformers
from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    StableDiffusionPipeline,
    UNet2DConditionModel,
)
from PIL import Image
from safetensors.torch import save_file
from torch.nn import functional
from tqdm import tqdm
from transformers import (
    CLIPImageProcessor,
    CLIPModel,
    CLIPTextModel,
    CLIPTokenizer,
    CLIPVisionModelWithProjection,
)

from subjectbench.errors import InputError
from subjectbench.miniworld.draw import draw
from subjectbench.miniworld.scenes import caption, make_prompts, reference_scene
from subjectbench.miniworld.subjects import Subject, looks, make_subjects, random_subject

SIZE = 64
HELD_OUT_SEED, HELD_OUT_COUNT = 0, 48  # the default study's subjects
TOKENS = 4  # image tokens per reference, as in IP-Adapter's base version
INFERENCE_STEPS, GUIDANCE = 20, 3.0
ADAPTER_FOLDER, ADAPTER_FILE = "ip_adapter", "ip_adapter.safetensors"
CHECKPOINT_SECONDS, SAVE_SECONDS = 120.0, 480.0

Weights = dict[str, torch.Tensor]


@dataclass
class Pool:
    """Drawn pictures and what they are asked by.

    Attributes:
        pictures: uint8, pictures x 64 x 64 x 3.
        prompts: one per picture; names the subject only by its noun.
        captions: one per picture; names its looks too.
        owner: int64, the row of ``references`` that shows the same subject.
        references: uint8, subjects x 64 x 64 x 3.
    """

    pictures: np.ndarray
    prompts: list[str]
    captions: list[str]
    owner: np.ndarray
    references: np.ndarray


@dataclass
class Codes:
    """A pool as the UNet sees it, so that a training step never draws or encodes.

    Attributes:
        latents: float32, pictures x 4 x 16 x 16.
        texts: float16, pictures x 2 (prompt, caption) x tokens x text width.
        embeds: float32, pictures x projection: the reference's CLIP embedding.
        no_text: float32, tokens x text width: the empty prompt.
    """

    latents: torch.Tensor
    texts: torch.Tensor
    embeds: torch.Tensor
    no_text: torch.Tensor


@dataclass
class Clip:
    """The frozen encoders, as the pipeline's components."""

    tokenizer: CLIPTokenizer
    text: CLIPTextModel
    vision: CLIPVisionModelWithProjection
    processor: CLIPImageProcessor
    whole: CLIPModel


def _render(subject: Subject, scene: Any) -> np.ndarray:
    return np.asarray(draw(subject, scene, size=SIZE).convert("RGB"))


def draw_pool(seed: int, subjects: int) -> Pool:
    """Draw every case of ``subjects`` random subjects, and each subject's reference picture."""
    rng = np.random.default_rng([seed, 0xD1F])
    banned = {looks(s) for s in make_subjects(HELD_OUT_SEED, HELD_OUT_COUNT)}
    pictures, prompts, captions, owner, references = [], [], [], [], []
    for index in tqdm(range(subjects), desc="drawing", disable=None):
        subject = random_subject(rng, index)
        while looks(subject) in banned:
            subject = random_subject(rng, index)
        references.append(_render(subject, reference_scene()))
        for _, prompt, scene in make_prompts(subject, seed + 1):
            pictures.append(_render(subject, scene))
            prompts.append(prompt)
            captions.append(caption(subject, scene))
            owner.append(index)
    return Pool(np.stack(pictures), prompts, captions, np.array(owner), np.stack(references))


def cached_pool(path: Path, seed: int, subjects: int) -> Pool:
    """Return ``draw_pool``'s result, from ``path`` when an earlier call drew the same."""
    name = f"{seed}/{subjects}"
    if path.is_file():
        with np.load(path) as file:
            if str(file["name"]) == name:
                return Pool(
                    pictures=file["pictures"],
                    prompts=[str(t) for t in file["prompts"]],
                    captions=[str(t) for t in file["captions"]],
                    owner=file["owner"],
                    references=file["references"],
                )
    pool = draw_pool(seed, subjects)
    np.savez(path, name=np.array(name), **vars(pool))
    return pool


def load_clip(folder: Path) -> Clip:
    """Load ``mini_clip``'s parts.

    Raises:
        InputError: the folder does not exist.
    """
    if not (folder / "config.json").is_file():
        raise InputError(folder, "no CLIP model here", "run subjectbench.miniworld.train first")
    return Clip(
        tokenizer=CLIPTokenizer.from_pretrained(folder),
        text=CLIPTextModel.from_pretrained(folder).eval().requires_grad_(False),
        vision=CLIPVisionModelWithProjection.from_pretrained(folder).eval().requires_grad_(False),
        processor=CLIPImageProcessor.from_pretrained(folder),
        whole=CLIPModel.from_pretrained(folder).eval().requires_grad_(False),
    )


def _batches(count: int, size: int) -> list[slice]:
    return [slice(i, i + size) for i in range(0, count, size)]


@torch.no_grad()
def text_states(clip: Clip, texts: Sequence[str]) -> torch.Tensor:
    """Encode texts exactly as ``StableDiffusionPipeline`` does: padded to the full length.

    Returns:
        float32, texts x tokens x text width.
    """
    length = clip.tokenizer.model_max_length
    ids = clip.tokenizer(
        list(texts), padding="max_length", max_length=length, truncation=True, return_tensors="pt"
    ).input_ids
    return torch.cat([clip.text(ids[part])[0] for part in _batches(len(ids), 256)])


@torch.no_grad()
def image_embeds(clip: Clip, images: Sequence[Image.Image | np.ndarray]) -> torch.Tensor:
    """Return the references' embeddings, float32, images x projection (not normalised)."""
    found = []
    for part in _batches(len(images), 256):
        shown = [i if isinstance(i, Image.Image) else Image.fromarray(i) for i in images[part]]
        pixels = clip.processor(shown, return_tensors="pt").pixel_values
        found.append(clip.vision(pixels).image_embeds)
    return torch.cat(found)


def _pixels(pictures: np.ndarray) -> torch.Tensor:
    """Map uint8, n x h x w x 3, to float32 in -1 to 1, n x 3 x h x w."""
    return torch.from_numpy(pictures.copy()).permute(0, 3, 1, 2).float() / 127.5 - 1


class Run:
    """One stage's loop: state in a file, a step count and a clock.

    Each stage starts its random numbers from the seed and the step it resumes at, so a resumed run
    is repeatable, though not equal to one that was never stopped.
    """

    def __init__(self, path: Path, seed: int, model: torch.nn.Module, rate: float) -> None:
        self.path, self.model, self.rate = path, model, rate
        self.params = [p for p in model.parameters() if p.requires_grad]
        self.optimiser = torch.optim.AdamW(self.params, lr=rate, betas=(0.9, 0.99))
        self.step, self.seconds = 0, 0.0
        self.average: Weights = {k: v.clone() for k, v in model.state_dict().items()}
        if path.is_file():
            state = torch.load(path, weights_only=True)
            model.load_state_dict(state["model"])
            self.optimiser.load_state_dict(state["optimiser"])
            self.average, self.step = state["average"], state["step"]
            self.seconds = state["seconds"]
        self.random = torch.Generator().manual_seed(seed * 1_000_003 + self.step)

    def save(self) -> None:
        """Write the state, so that a crash leaves the old one or the new one."""
        state = {
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "average": self.average,
            "step": self.step,
            "seconds": self.seconds,
        }
        torch.save(state, self.path.with_suffix(".new"))
        self.path.with_suffix(".new").replace(self.path)

    def fit(
        self,
        loss_of: Callable[[torch.Generator], torch.Tensor],
        steps: int,
        until: float,
        name: str,
        each_save: Callable[[], None] | None = None,
    ) -> bool:
        """Train up to ``steps`` or the time ``until``; return whether all steps are done.

        The rate warms up over 2 % of the steps and falls to zero over the last 40 %.
        """
        self.model.train()
        last = saved = start = time.monotonic()
        before, losses = self.seconds, []
        bar = tqdm(total=steps, initial=self.step, desc=name, disable=None)
        while self.step < steps and time.monotonic() < until:
            done = self.step / steps
            warm = min(1.0, (self.step + 1) / max(1.0, 0.02 * steps))
            for group in self.optimiser.param_groups:
                group["lr"] = self.rate * min(warm, (1 - done) / 0.4)
            loss = loss_of(self.random)
            self.optimiser.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.params, 1.0)
            self.optimiser.step()
            self.step += 1
            losses.append(loss.item())
            # Early weights would linger in a long average, so it is short at first.
            keep = min(0.998, (1 + self.step) / (10 + self.step))
            with torch.no_grad():
                for key, value in self.model.state_dict().items():
                    self.average[key].lerp_(value, 1 - keep)
            bar.update()
            now = time.monotonic()
            self.seconds = before + now - start
            if self.step % 100 == 0:
                print(
                    f"{name} step {self.step} loss {np.mean(losses[-100:]):.4f} "
                    f"{self.seconds:.0f} s",
                    flush=True,
                )
            if now - last > CHECKPOINT_SECONDS:
                self.save()
                last = now
            if each_save is not None and now - saved > SAVE_SECONDS:
                each_save()
                self.model.train()
                saved = time.monotonic()
        bar.close()
        self.save()
        self.model.eval()
        return self.step >= steps


def make_vae() -> AutoencoderKL:
    """Return an untrained autoencoder, 3 x 64 x 64 to 4 x 16 x 16 (0.65 M parameters)."""
    return AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 3,
        up_block_types=("UpDecoderBlock2D",) * 3,
        block_out_channels=(16, 32, 64),
        layers_per_block=1,
        latent_channels=4,
        norm_num_groups=8,
        sample_size=SIZE,
        mid_block_add_attention=False,
    )


def make_unet(text_width: int) -> UNet2DConditionModel:
    """Return an untrained UNet on 4 x 16 x 16 latents (2.25 M parameters).

    Attention only at 8 x 8, where it costs little: half the time of a step otherwise.
    """
    return UNet2DConditionModel(
        sample_size=SIZE // 4,
        in_channels=4,
        out_channels=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        block_out_channels=(48, 96),
        layers_per_block=1,
        cross_attention_dim=text_width,
        attention_head_dim=4,
        norm_num_groups=16,
    )


def make_scheduler() -> DDIMScheduler:
    """Return Stable Diffusion's noise schedule with velocity as the target."""
    return DDIMScheduler(
        beta_start=0.00085,
        beta_end=0.012,
        beta_schedule="scaled_linear",
        prediction_type="v_prediction",
        clip_sample=False,
        set_alpha_to_one=False,
        steps_offset=1,
        timestep_spacing="trailing",  # starts at the noisiest step, as training saw it
    )


def _cross_attentions(unet: UNet2DConditionModel) -> list[str]:
    """Return the cross-attention processors' names in diffusers' order, which numbers the keys."""
    return [name for name in unet.attn_processors if not name.endswith("attn1.processor")]


def add_adapter(unet: UNet2DConditionModel, embeds: torch.Tensor, seed: int) -> None:
    """Give the UNet an untrained IP-Adapter, by the code that loads trained ones.

    Args:
        embeds: references x projection. CLIP's embeddings share a large common part that says
            nothing about the subject, so the projection starts as a random one of the whitened
            embedding; from an ordinary start, training first has to find the small differences.
    """
    random = torch.Generator().manual_seed(seed)
    mean = embeds.mean(0)
    values, vectors = torch.linalg.eigh((embeds - mean).T @ (embeds - mean) / len(embeds))
    whiten = (values + 0.02 * values.mean() + 1e-8).rsqrt()[:, None] * vectors.T

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, generator=random) / columns**0.5

    width = unet.config.cross_attention_dim
    first = matrix(TOKENS * width, embeds.shape[1]) @ whiten
    proj = {
        "proj.weight": first,
        "proj.bias": -first @ mean,
        "norm.weight": torch.ones(width),
        "norm.bias": torch.zeros(width),
    }
    layers = {}
    for index, name in enumerate(_cross_attentions(unet)):
        rows = unet.get_submodule(name.removesuffix(".processor")).to_k.weight.shape[0]
        for part in ("to_k_ip", "to_v_ip"):
            layers[f"{2 * index + 1}.{part}.weight"] = matrix(rows, width)
    unet._load_ip_adapter_weights(
        [{"image_proj": proj, "ip_adapter": layers}], low_cpu_mem_usage=False
    )


def split_adapter(unet: UNet2DConditionModel, weights: Weights) -> tuple[Weights, Weights]:
    """Split trained weights into the plain UNet's and an adapter in h94/IP-Adapter's layout.

    Returns:
        ``(base, adapter)``; the adapter's keys are ``image_proj.*`` and ``ip_adapter.<odd>.*``.
    """
    head = "encoder_hid_proj.image_projection_layers.0."
    adapter = {
        "image_proj.proj.weight": weights[f"{head}image_embeds.weight"],
        "image_proj.proj.bias": weights[f"{head}image_embeds.bias"],
        "image_proj.norm.weight": weights[f"{head}norm.weight"],
        "image_proj.norm.bias": weights[f"{head}norm.bias"],
    }
    for index, name in enumerate(_cross_attentions(unet)):
        for part in ("to_k_ip", "to_v_ip"):
            adapter[f"ip_adapter.{2 * index + 1}.{part}.weight"] = weights[
                f"{name}.{part}.0.weight"
            ]
    base = {k: v for k, v in weights.items() if not k.startswith(head) and "_ip.0." not in k}
    return base, {k: v.contiguous().clone() for k, v in adapter.items()}


def _scale_adapter(unet: UNet2DConditionModel, scale: float) -> None:
    for name in _cross_attentions(unet):
        unet.attn_processors[name].scale = [scale]


def train_vae(pool: Pool, run: Run, *, steps: int, batch: int, until: float) -> bool:
    """Train the autoencoder with errors of pixels and of coarse colour, and a small KL term."""
    vae = run.model

    def loss_of(random: torch.Generator) -> torch.Tensor:
        rows = torch.randint(len(pool.pictures), (batch,), generator=random).numpy()
        pixels = _pixels(pool.pictures[rows])
        posterior = vae.encode(pixels).latent_dist
        noise = torch.randn(posterior.mean.shape, generator=random)
        rebuilt = vae.decode(posterior.mean + posterior.std * noise).sample
        kl = posterior.kl().mean() / posterior.mean[0].numel()
        error = functional.l1_loss(rebuilt, pixels) + functional.mse_loss(rebuilt, pixels)
        # Group normalisation hides absolute colours, which are then learned last, but a subject is
        # told by its colour first.
        coarse = [functional.avg_pool2d(p, 4) for p in (rebuilt, pixels)]
        error = error + 2 * functional.l1_loss(*coarse)
        return error + 1e-4 * kl

    return run.fit(loss_of, steps, until, "autoencoder")


@torch.no_grad()
def normalise_latents(vae: AutoencoderKL, pictures: np.ndarray) -> float:
    """Give every latent channel mean 0 and deviation 1, then store the measured scale.

    The pipeline can only multiply by one number, so the channels' shifts and scales are folded into
    the 1 x 1 convolutions on both sides of the latent; what is decoded does not change.

    Returns:
        ``scaling_factor``: the inverse of the deviation that is left, which is close to 1.
    """

    def means() -> torch.Tensor:
        parts = _batches(len(pictures), 64)
        return torch.cat([vae.encode(_pixels(pictures[p])).latent_dist.mean for p in parts])

    found = means()
    shift, spread = found.mean((0, 2, 3)), found.std((0, 2, 3))
    into, out = vae.quant_conv, vae.post_quant_conv
    count = len(shift)
    into.bias[:count] -= shift
    into.weight[:count] /= spread[:, None, None, None]
    into.bias[:count] /= spread
    into.bias[count:] -= 2 * spread.log()  # the other half is the log variance
    out.bias += out.weight[:, :, 0, 0] @ shift
    out.weight *= spread[None, :, None, None]
    factor = 1 / means().std().item()
    vae.register_to_config(scaling_factor=factor)
    return factor


@torch.no_grad()
def encode_pool(pool: Pool, vae: AutoencoderKL, clip: Clip) -> Codes:
    """Encode every picture, text and reference once."""
    parts = _batches(len(pool.pictures), 64)
    latents = [vae.encode(_pixels(pool.pictures[p])).latent_dist.mean for p in parts]
    texts = [text_states(clip, t).half() for t in (pool.prompts, pool.captions)]
    return Codes(
        latents=torch.cat(latents) * vae.config.scaling_factor,
        texts=torch.stack(texts, 1),
        embeds=image_embeds(clip, pool.references)[torch.from_numpy(pool.owner)],
        no_text=text_states(clip, [""])[0],
    )


def train_unet(
    codes: Codes,
    run: Run,
    *,
    steps: int,
    batch: int,
    until: float,
    each_save: Callable[[], None] | None = None,
) -> bool:
    """Train UNet and adapter together.

    Text, reference and both are left out in 10 % of the samples each, which classifier-free
    guidance needs; every seventh batch runs without the adapter, so that the UNet alone stays an
    ordinary text-to-image model.
    """
    unet, scheduler = run.model, make_scheduler()
    levels = scheduler.config.num_train_timesteps

    def loss_of(random: torch.Generator) -> torch.Tensor:
        rows = torch.randint(len(codes.latents), (batch,), generator=random)
        worded = torch.randint(2, (batch,), generator=random)
        dropped = torch.rand(batch, generator=random)
        times = torch.randint(levels, (batch,), generator=random)
        plain = run.step % 7 == 6
        latents, texts = codes.latents[rows], codes.texts[rows, worded].float()
        embeds = codes.embeds[rows]
        noise = torch.randn(latents.shape, generator=random)
        texts = torch.where((dropped < 0.2)[:, None, None], codes.no_text, texts)
        lost = (dropped >= 0.1) & (dropped < 0.3)
        embeds = torch.where(lost[:, None], torch.zeros_like(embeds), embeds)
        _scale_adapter(unet, 0.0 if plain else 1.0)
        found = unet(
            scheduler.add_noise(latents, noise, times),
            times,
            texts,
            added_cond_kwargs={"image_embeds": [embeds[:, None]]},
        ).sample
        _scale_adapter(unet, 1.0)
        return functional.mse_loss(found, scheduler.get_velocity(latents, noise, times))

    return run.fit(loss_of, steps, until, "unet", each_save)


def save_pipeline(
    out: Path, vae: AutoencoderKL, unet: UNet2DConditionModel, weights: Weights, clip: Clip
) -> None:
    """Write the folder: the plain pipeline, and the adapter with its image encoder beside it.

    Autoencoder and UNet are stored in half precision and load in single.
    """
    base, adapter = split_adapter(unet, weights)
    plain = make_unet(unet.config.cross_attention_dim)
    plain.load_state_dict(base)
    pipeline = StableDiffusionPipeline(
        vae=copy.deepcopy(vae).half(),
        text_encoder=clip.text,
        tokenizer=clip.tokenizer,
        unet=plain.half(),
        scheduler=make_scheduler(),
        safety_checker=None,
        feature_extractor=clip.processor,
        image_encoder=None,
        requires_safety_checker=False,
    )
    fresh = out.with_name(out.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    pipeline.save_pretrained(fresh)
    clip.vision.save_pretrained(fresh / ADAPTER_FOLDER / "image_encoder")
    save_file(adapter, fresh / ADAPTER_FOLDER / ADAPTER_FILE)
    if (out / "training.json").is_file():
        shutil.copy(out / "training.json", fresh / "training.json")
    shutil.rmtree(out, ignore_errors=True)
    fresh.rename(out)


def load_pipeline(folder: Path, adapter: bool = True) -> StableDiffusionPipeline:
    """Load a saved folder the way a full checkpoint and its IP-Adapter are loaded."""
    pipeline = StableDiffusionPipeline.from_pretrained(
        folder, safety_checker=None, local_files_only=True
    )
    if adapter:
        pipeline.load_ip_adapter(
            str(folder),
            subfolder=ADAPTER_FOLDER,
            weight_name=ADAPTER_FILE,
            image_encoder_folder="image_encoder",
            local_files_only=True,
        )
        pipeline.set_ip_adapter_scale(1.0)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


@torch.no_grad()
def generate(
    pipeline: StableDiffusionPipeline,
    prompts: Sequence[str],
    references: Sequence[Image.Image] | None,
    seeds: Sequence[int],
    *,
    steps: int = INFERENCE_STEPS,
    guidance: float = GUIDANCE,
) -> list[Image.Image]:
    """Generate one picture per prompt, each from its own seed.

    Args:
        references: one per prompt; None for a pipeline without an adapter.
        seeds: of the starting noise. DDIM with eta 0 draws nothing else.
    """
    channels, side = pipeline.unet.config.in_channels, pipeline.unet.config.sample_size
    noise = [
        torch.randn(1, channels, side, side, generator=torch.Generator().manual_seed(s))
        for s in seeds
    ]
    extra: dict[str, Any] = {}
    if references is not None:
        # As embeddings: a list of pictures would be taken for many references of one prompt.
        embeds, nothing = pipeline.encode_image(list(references), pipeline.device, 1)
        both = torch.cat([nothing, embeds]) if guidance > 1 else embeds
        extra["ip_adapter_image_embeds"] = [both[:, None]]
    return pipeline(
        prompt=list(prompts),
        latents=torch.cat(noise),
        num_inference_steps=steps,
        guidance_scale=guidance,
        **extra,
    ).images


def measure_skill(folder: Path, clip: Clip, subjects: int, steps: int) -> dict[str, Any]:
    """Compare generated pictures of held-out subjects with a perfect and a wrong renderer.

    Returns:
        Mean cosines by ``mini_clip`` of each picture with the prompt's text and with the reference,
        for the pipeline, for the perfect drawing, for the perfect drawing of another subject of the
        same noun where there is one, and for the pipeline without its adapter.
    """
    cases, prompts, references, perfect, other = [], [], [], [], []
    held_out = make_subjects(HELD_OUT_SEED, HELD_OUT_COUNT)
    for index, subject in enumerate(held_out[:subjects]):
        rest = [*held_out[index + 1 :], *held_out[:index]]
        stranger = next((s for s in rest if s.noun == subject.noun), rest[0])
        # Background, interaction, style, imagination: their looks are the subject's own.
        for case in (0, 4, 8, 10):
            _, prompt, scene = make_prompts(subject, HELD_OUT_SEED)[case]
            cases.append(index)
            prompts.append(prompt)
            references.append(Image.fromarray(_render(subject, reference_scene())))
            perfect.append(Image.fromarray(_render(subject, scene)))
            other.append(Image.fromarray(_render(stranger, scene)))
    made: dict[str, list[Image.Image]] = {"perfect": perfect, "other_subject": other}
    for name, adapter in (("pipeline", True), ("without_reference", False)):
        pipeline = load_pipeline(folder, adapter)
        made[name] = []
        for part in _batches(len(prompts), 16):
            shown = references[part] if adapter else None
            seeds = range(1000 + part.start, 1000 + min(part.stop, len(prompts)))
            made[name] += generate(pipeline, prompts[part], shown, list(seeds), steps=steps)

    def centre(images: Sequence[Image.Image]) -> np.ndarray:
        inner = slice(SIZE // 2 - 12, SIZE // 2 + 12)
        return np.stack([np.asarray(i, np.float64)[inner, inner].mean((0, 1)) for i in images])

    def unit(values: torch.Tensor) -> torch.Tensor:
        return functional.normalize(values, dim=-1)

    ids = clip.tokenizer(list(prompts), padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        told = clip.whole.get_text_features(**ids).pooler_output
    wanted = centre(perfect)
    texts, shown_embeds = unit(told), unit(image_embeds(clip, references))
    skill: dict[str, Any] = {"subjects": len(set(cases)), "pictures": len(prompts)}
    for name, images in made.items():
        seen = unit(image_embeds(clip, images))
        skill[name] = {
            "text": round((seen * texts).sum(-1).mean().item(), 4),
            "reference": round((seen * shown_embeds).sum(-1).mean().item(), 4),
            "centre_colour_error": round(float(np.abs(centre(images) - wanted).mean()), 2),
        }
    return skill


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the saved pipeline")
    parser.add_argument("--work", type=Path, help="checkpoints (default: OUT + '.work')")
    parser.add_argument("--clip", type=Path, help="folder of mini_clip (default: beside OUT)")
    parser.add_argument("--steps", type=int, default=2000, help="of the UNet")
    parser.add_argument("--vae-steps", type=int, default=3800)
    parser.add_argument("--vae-batch", type=int, default=4)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--subjects", type=int, default=1000, help="drawn, with 12 pictures each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=120.0, help="stop after this long")
    parser.add_argument("--skill-subjects", type=int, default=24, help="0: do not measure")
    parser.add_argument("--inference-steps", type=int, default=INFERENCE_STEPS)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Train, or go on training, and write the folder.

    Raises:
        InputError: ``mini_clip`` is needed and is not there (the autoencoder is trained before).
    """
    args = _arguments(argv)
    until = time.monotonic() + 60 * args.minutes
    out: Path = args.out
    work: Path = args.work or out.with_name(out.name + ".work")
    work.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # more threads would change the sums, and so the weights
    torch.manual_seed(args.seed)
    pool = cached_pool(work / "pool.npz", args.seed, args.subjects)

    vae = make_vae()
    first = Run(work / "autoencoder.pt", args.seed, vae, 1.5e-3)
    # The autoencoder may use at most 40 % of the time when both have to be trained.
    train_vae(
        pool,
        first,
        steps=args.vae_steps,
        batch=args.vae_batch,
        until=min(until, time.monotonic() + 24 * args.minutes),
    )
    vae.load_state_dict(first.average)
    vae.eval().requires_grad_(False)
    sample = pool.pictures[:: max(1, len(pool.pictures) // 512)]
    factor = normalise_latents(vae, sample)

    clip_folder: Path = args.clip or out.with_name("mini_clip")
    clip = load_clip(clip_folder)
    codes = encode_pool(pool, vae, clip)
    torch.manual_seed(args.seed)
    unet = make_unet(clip.text.config.hidden_size)
    add_adapter(unet, image_embeds(clip, pool.references), args.seed)
    second = Run(work / "unet.pt", args.seed, unet, 1e-3)

    def save() -> None:
        save_pipeline(out, vae, unet, second.average, clip)
        print(f"saved {out} at step {second.step}", flush=True)

    done = train_unet(
        codes, second, steps=args.steps, batch=args.batch, until=until, each_save=save
    )
    save()
    record = {
        "recipe": "subjectbench.miniworld.train_diffusion",
        "arguments": {
            k: v for k, v in vars(args).items() if k not in ("out", "work", "clip", "minutes")
        },
        "seed": args.seed,
        "finished": done,
        "autoencoder": {
            "steps": first.step,
            "seconds": round(first.seconds),
            "parameters": sum(p.numel() for p in vae.parameters()),
            "scaling_factor": factor,
            "held_out_l1": _reconstruction(vae),  # of 255
        },
        "unet": {
            "steps": second.step,
            "seconds": round(second.seconds),
            "parameters": sum(p.numel() for p in unet.parameters()),
        },
        "inference": {"steps": args.inference_steps, "guidance": GUIDANCE, "adapter_scale": 1.0},
        "skill": measure_skill(out, clip, args.skill_subjects, args.inference_steps)
        if args.skill_subjects
        else {},
        "clip_sha256": hashlib.sha256((clip_folder / "model.safetensors").read_bytes()).hexdigest(),
        "held_out": f"make_subjects({HELD_OUT_SEED}, {HELD_OUT_COUNT}) and whatever looks the same",
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "diffusers": diffusers.__version__,
            "transformers": transformers.__version__,
            "pillow": PIL.__version__,
        },
    }
    (out / "training.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(record["skill"]), flush=True)
    return 0


@torch.no_grad()
def _reconstruction(vae: AutoencoderKL) -> float:
    """Return the mean absolute error on held-out pictures, in steps of 255."""
    subjects = make_subjects(HELD_OUT_SEED, HELD_OUT_COUNT)[:8]
    drawn = [_render(s, scene) for s in subjects for _, _, scene in make_prompts(s, HELD_OUT_SEED)]
    pixels = _pixels(np.stack(drawn))
    rebuilt = vae.decode(vae.encode(pixels).latent_dist.mean).sample.clamp(-1, 1)
    return round(127.5 * (rebuilt - pixels).abs().mean().item(), 3)


if __name__ == "__main__":
    raise SystemExit(main())
