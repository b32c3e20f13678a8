"""The generator's recipe, on a pool and an encoder too small to learn anything."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from transformers import CLIPConfig, CLIPModel, CLIPTokenizer

from subjectbench.errors import InputError
from subjectbench.miniworld import train_diffusion as recipe
from subjectbench.miniworld.draw import draw
from subjectbench.miniworld.scenes import reference_scene
from subjectbench.miniworld.subjects import looks, make_subjects

ARGUMENTS = "--subjects 1 --vae-steps 2 --steps 2 --batch 4 --skill-subjects 1 --inference-steps 2"


def _small_clip(folder: Path) -> Path:
    """Save an untrained CLIP whose words are single letters."""
    letters = "abcdefghijklmnopqrstuvwxyz,-"
    tokens = [*letters, *(c + "</w>" for c in letters), "<|startoftext|>", "<|endoftext|>"]
    tokenizer = CLIPTokenizer(
        vocab={t: i for i, t in enumerate(tokens)}, merges=[], model_max_length=16
    )
    special = {
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    small = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "projection_dim": 8,
    }
    torch.manual_seed(0)
    text = {**small, "vocab_size": len(tokens), "max_position_embeddings": 16, **special}
    vision = {**small, "image_size": 64, "patch_size": 16}
    CLIPModel(
        CLIPConfig(text_config=text, vision_config=vision, projection_dim=8, **special)
    ).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(
        json.dumps(
            {
                "image_processor_type": "CLIPImageProcessor",
                "size": {"shortest_edge": 64},
                "crop_size": {"height": 64, "width": 64},
            }
        )
    )
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    root = tmp_path_factory.mktemp("recipe")
    clip = _small_clip(root / "mini_clip")
    arguments = [*ARGUMENTS.split(), "--out", str(root / "out"), "--clip", str(clip)]
    assert recipe.main(arguments) == 0
    return root / "out", arguments


@pytest.fixture
def references() -> list[Image.Image]:
    return [draw(s, reference_scene(), size=64) for s in make_subjects(5, 3)]


def test_folder_loads_offline_and_the_picture_depends_on_the_reference(
    trained, references, monkeypatch
):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    pipeline = recipe.load_pipeline(trained[0])
    # An untrained image encoder sees hardly any difference between two drawings.
    references[1] = Image.effect_noise((64, 64), 90).convert("RGB")

    def make(reference: Image.Image) -> np.ndarray:
        (image,) = recipe.generate(pipeline, ["a mug"], [reference], [3], steps=2, guidance=3.0)
        return np.asarray(image, np.int64)

    first = make(references[0])
    assert first.shape == (64, 64, 3)
    assert np.array_equal(first, make(references[0]))
    assert not np.array_equal(first, make(references[1]))
    pipeline.set_ip_adapter_scale(0.0)
    assert np.array_equal(make(references[0]), make(references[1]))


def test_a_call_with_pictures_equals_one_with_embeddings(trained, references):
    pipeline = recipe.load_pipeline(trained[0])
    (expected,) = recipe.generate(pipeline, ["a mug"], references[:1], [3], steps=2)
    found = pipeline(
        "a mug",
        ip_adapter_image=references[0],
        generator=torch.Generator().manual_seed(3),
        num_inference_steps=2,
        guidance_scale=recipe.GUIDANCE,
    ).images[0]
    assert np.array_equal(np.asarray(found), np.asarray(expected))


def test_adapter_scale_zero_is_the_pipeline_without_it(trained, references):
    with_adapter = recipe.load_pipeline(trained[0])
    with_adapter.set_ip_adapter_scale(0.0)
    plain = recipe.load_pipeline(trained[0], adapter=False)
    (a,) = recipe.generate(with_adapter, ["a mug"], references[:1], [3], steps=2)
    (b,) = recipe.generate(plain, ["a mug"], None, [3], steps=2)
    assert np.array_equal(np.asarray(a), np.asarray(b))


def test_adapter_has_the_published_layout(trained):
    keys = set(load_file(trained[0] / recipe.ADAPTER_FOLDER / recipe.ADAPTER_FILE))
    heads = {f"image_proj.{p}.{w}" for p in ("proj", "norm") for w in ("weight", "bias")}
    assert heads < keys
    assert {k for k in keys if k not in heads} == {
        f"ip_adapter.{n}.{p}.weight" for n in (1, 3, 5, 7) for p in ("to_k_ip", "to_v_ip")
    }


def test_record_and_size(trained):
    record = json.loads((trained[0] / "training.json").read_text())
    assert record["finished"]
    assert record["unet"]["steps"] == 2
    assert set(record["skill"]) >= {"pipeline", "perfect", "other_subject", "without_reference"}
    assert sum(f.stat().st_size for f in trained[0].rglob("*") if f.is_file()) < 12_000_000


def test_goes_on_where_it_stopped(trained):
    out, arguments = trained
    assert recipe.main([*arguments, "--steps", "3", "--skill-subjects", "0"]) == 0
    record = json.loads((out / "training.json").read_text())
    assert (record["unet"]["steps"], record["autoencoder"]["steps"]) == (3, 2)


def test_text_and_image_codes_are_the_pipelines_own(trained, references):
    pipeline = recipe.load_pipeline(trained[0])
    clip = recipe.load_clip(trained[0].with_name("mini_clip"))
    told = pipeline.encode_prompt("a red mug", "cpu", 1, False)[0]
    assert torch.equal(recipe.text_states(clip, ["a red mug"]), told)
    seen = pipeline.encode_image(references, "cpu", 1)[0]
    assert torch.equal(recipe.image_embeds(clip, references), seen)


@torch.no_grad()
def test_normalised_latents_decode_to_the_same():
    torch.manual_seed(0)
    vae = recipe.make_vae()
    pictures = np.random.default_rng(0).integers(0, 256, (8, 64, 64, 3), np.uint8)
    pixels = recipe._pixels(pictures)
    before = vae.decode(vae.encode(pixels).latent_dist.mean).sample
    factor = recipe.normalise_latents(vae, pictures)
    means = vae.encode(pixels).latent_dist.mean
    assert torch.allclose(vae.decode(means).sample, before, atol=1e-4)
    assert torch.allclose(means.mean((0, 2, 3)), torch.zeros(4), atol=1e-4)
    assert factor == pytest.approx(1.0, abs=1e-2) == vae.config.scaling_factor


def test_pool_avoids_the_held_out_subjects(monkeypatch):
    subject = make_subjects(recipe.HELD_OUT_SEED, 1)[0]
    other = next(s for s in make_subjects(7, 9) if looks(s) != looks(subject))
    offered = iter([subject, other])
    monkeypatch.setattr(recipe, "random_subject", lambda rng, index: next(offered))
    pool = recipe.draw_pool(0, 1)
    assert np.array_equal(pool.references[0], np.asarray(draw(other, reference_scene(), size=64)))
    assert len(pool.pictures) == len(pool.prompts) == len(pool.captions) == 12


def test_missing_clip_says_what_to_do(tmp_path):
    with pytest.raises(InputError, match="no CLIP model here"):
        recipe.load_clip(tmp_path / "mini_clip")
