"""diffusers pipelines on small random checkpoints: loading, faithfulness, memory, no pictures."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from subjectbench import cards, checkpoint
from subjectbench.cards import GeneratorCard, Weights
from subjectbench.config import Use
from subjectbench.errors import InputError
from subjectbench.generators import adapters
from subjectbench.generators.ace_plus import diptych
from subjectbench.generators.base import Job, Outcome
from subjectbench.generators.native import Native
from subjectbench.generators.omini_control import squared
from subjectbench.vocabulary import Status
from tests import pipelines

pytestmark = pytest.mark.usefixtures("one_thread")

CARDS = [
    name
    for name in cards.names("generator")
    if issubclass(plugin := cards.plugin("generator", cards.load("generator", name), name), Native)
    and not plugin.tuning  # test_tuning.py has those
    and name != "mini_diffusion"  # tests/contract has it, with its own weights
]
SMALL = {"steps": 2, "height": 16, "width": 16, "dtype": "float32", "variant": None}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of every base and adapter, by the names of the cards' files."""
    folder = tmp_path_factory.mktemp("checkpoints")
    pipelines.save_sd(folder / "sd")
    pipelines.save_sdxl(folder / "sdxl")
    encoder = "models/image_encoder"
    for base, file in (
        ("sd", "models/ip-adapter_sd15.safetensors"),
        ("sdxl", "sdxl_models/ip-adapter_sdxl_vit-h.safetensors"),
    ):
        pipelines.save_ip_adapter(folder / f"adapter_{base}", folder / base, file, encoder)
    for kind in ("text", "kontext", "fill"):
        pipelines.save_flux(folder / kind, kind)
    for base, file in (
        ("fill", "subject/comfyui_subject_lora16.safetensors"),
        ("text", "omini/subject_512.safetensors"),
    ):
        plain = checkpoint.pipeline(folder / base, (pipelines.FLUX[base].__name__,))
        pipelines.save_lora(plain, folder / f"lora_{base}" / file, "transformer")
    return folder


BASES = {
    "sd15": ("sd", {}),
    "sdxl": ("sdxl", {}),
    "ip_adapter_sd15": ("sd", {"adapter": "adapter_sd"}),
    "ip_adapter_sdxl": ("sdxl", {"adapter": "adapter_sdxl"}),
    "flux_kontext": ("kontext", {}),
    "ace_plus": ("fill", {"lora": "lora_fill"}),
    "omini_control": ("text", {"lora": "lora_text"}),
    "omnigen": ("omnigen", {}),
    "qwen_image_edit_2509": ("qwen", {}),
}
"""Card: folder of its base, and of its parts."""


def build(home: Path, name: str, **params: Any) -> Native:
    """The card's generator with its own settings, on small weights."""
    card: GeneratorCard = cards.load("generator", name)
    base, parts = BASES[name]
    if base in ("omnigen", "qwen"):
        if importlib.util.find_spec("torchvision") is None:
            pytest.skip("diffusers cannot build this pipeline without torchvision")
        if not (home / base).is_dir():
            pipelines.SAVE[base](home / base)
    card = card.model_copy(
        update={
            "weights": Weights(path=str(home / base)),
            "parts": {role: Weights(path=str(home / folder)) for role, folder in parts.items()},
        }
    )
    small = SMALL | {"reference_size": 16, "shift": [0, 1], "auto_resize": False}
    plugin = cards.plugin("generator", card, name)
    wanted = {n: v for n, v in {**small, **params}.items() if n in plugin.Params.model_fields}
    effective = cards.params("generator", Use(card=name, params=wanted), name)
    made: Native = plugin(effective, card, None, "cpu")
    return made


def asked(count: int, reference: int = 0, subject: str = "mug") -> list[Job]:
    rng = np.random.default_rng(reference)
    shown = Image.fromarray(rng.integers(0, 256, (40, 40, 3), np.uint8))
    return [Job(f"s{i}", "x", subject, f"a mug no {i}", shown, 100 + i, {}) for i in range(count)]


def pixels(outcomes: list[Outcome]) -> np.ndarray:
    assert {o.status for o in outcomes} == {Status.OK}, outcomes
    return np.stack([np.asarray(o.image, dtype=int) for o in outcomes])


def test_every_card_is_here() -> None:
    assert set(CARDS) == set(BASES)


@pytest.mark.parametrize("name", CARDS)
def test_GEN_04_a_batch_of_one_and_of_eight(home: Path, name: str) -> None:
    """GEN-04: a seed gives its picture wherever it stands, among however many.

    Up to a last digit: a matrix product may round differently for another row or number of rows.
    Which is why the stage always asks for the same jobs in the same order.
    """
    # Qwen's pipeline takes one at a time, and makes a megapixel of every reference: seconds each.
    count = 2 if "qwen" in name else 8
    jobs = asked(count)
    eight = build(home, name, compute_batch=1 if "qwen" in name else 8)
    all_of_them = pixels(eight.generate(jobs))
    assert all_of_them.shape == (count, 16, 16, 3)
    assert len({picture.tobytes() for picture in all_of_them}) == count
    assert (pixels(eight.generate(jobs)) == all_of_them).all()
    assert np.abs(pixels(eight.generate(jobs[-1:])) - all_of_them[-1:]).max() <= 1
    assert np.abs(pixels(eight.generate(jobs[::-1]))[::-1] - all_of_them).max() <= 1
    one = pixels(build(home, name, compute_batch=1).generate(jobs[:2]))
    assert np.abs(one - all_of_them[:2]).max() <= 2 or eight.card.batch_dependent


@pytest.mark.parametrize("name", CARDS)
def test_the_reference_is_seen(home: Path, name: str) -> None:
    """GEN-06: no card but a control makes pictures from the text alone."""
    generator = build(home, name)
    jobs, others = asked(2), asked(2, reference=1)
    seen = (pixels(generator.generate(jobs)) != pixels(generator.generate(others))).any()
    assert seen == (generator.card.role == "model")


@pytest.mark.parametrize(
    ("name", "scale"),
    [
        ("ip_adapter_sd15", "adapter_scale"),
        ("ip_adapter_sdxl", "adapter_scale"),
        ("ace_plus", "lora_scale"),
        ("omini_control", "lora_scale"),
    ],
)
def test_GEN_01_the_adapter_changes_the_picture(home: Path, name: str, scale: str) -> None:
    """GEN-01: the same seed with and without it differs."""
    jobs = asked(1)
    with_it = pixels(build(home, name).generate(jobs))
    without = pixels(build(home, name, **{scale: 0.0}).generate(jobs))
    assert np.abs(with_it - without).max() > 2


def test_ip_adapter_without_weight_is_its_base(home: Path) -> None:
    jobs = asked(1)
    alone = pixels(build(home, "sd15").generate(jobs))
    silent = pixels(build(home, "ip_adapter_sd15", adapter_scale=0.0).generate(jobs))
    assert np.abs(alone - silent).max() <= 1


# --- LoRA ----------------------------------------------------------------------------------------


@pytest.fixture
def flux(home: Path) -> Any:
    return checkpoint.pipeline(home / "fill", ("FluxFillPipeline",))


def lora(home: Path) -> dict[str, torch.Tensor]:
    return dict(load_file(home / "lora_fill" / "subject" / "comfyui_subject_lora16.safetensors"))


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda t: {f"modell.{k}": v for k, v in t.items()}, r"fit no part .* first 'modell\."),
        (lambda t: {k.replace("transformer_blocks.0", "transformer_blocks.7"): v
                    for k, v in t.items()}, "tensors of transformer|cannot be loaded"),
        (lambda t: {**t, "transformer.nowhere.lora_A.weight": torch.ones(2, 32),
                    "transformer.nowhere.lora_B.weight": torch.ones(32, 2)}, "nowhere"),
        (lambda t: {k: v[:, :-1] if "lora_A" in k else v for k, v in t.items()}, "another"),
    ],
    ids=["prefix", "block", "left-over", "shape"],
)  # fmt: skip
def test_GEN_01_a_lora_that_does_not_fit_stops(
    home: Path, flux: Any, tmp_path: Path, change: Callable[..., Any], fault: str
) -> None:
    """GEN-01: diffusers would log a line and draw with the base model alone."""
    file = tmp_path / "wrong.safetensors"
    save_file({k: v.contiguous() for k, v in change(lora(home)).items()}, file)
    with pytest.raises(InputError, match=fault) as caught:
        adapters.load_lora(flux, file, "a")
    assert "wrong.safetensors" in caught.value.where


def test_GEN_01_a_lora_without_effect_is_told(home: Path, flux: Any, tmp_path: Path) -> None:
    """GEN-01: all 'up' matrices are zero: a valid file that changes nothing."""
    file = tmp_path / "zero.safetensors"
    zeros = {k: v * (0 if "lora_B" in k else 1) for k, v in lora(home).items()}
    save_file(zeros, file)
    with pytest.warns(UserWarning, match="changes no picture"):
        assert adapters.load_lora(flux, file, "a") == {"adapter": "without effect"}


def test_a_lora_of_a_unet_in_two_forms(home: Path, tmp_path: Path) -> None:
    """As peft names its tensors, and as diffusers' older examples did."""
    pipeline = checkpoint.pipeline(home / "sd", ("StableDiffusionPipeline",))
    file = pipelines.save_lora(pipeline, tmp_path / "new.safetensors", "unet")
    assert adapters.load_lora(pipeline, file, "new") == {}
    names = {".lora_A.": ".lora.down.", ".lora_B.": ".lora.up."}
    old = {}
    for key, value in load_file(file).items():
        for new_name, old_name in names.items():
            key = key.replace(new_name, old_name)
        old[key] = value
    save_file(old, tmp_path / "old.safetensors")
    assert adapters.load_lora(pipeline, tmp_path / "old.safetensors", "old") == {}
    with pytest.raises(InputError, match="is not there"):
        adapters.load_lora(pipeline, tmp_path / "none.safetensors", "none")


# --- IP-Adapter ----------------------------------------------------------------------------------


def rewrite(home: Path, folder: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    """A copy of the SD adapter with changed tensors."""
    shutil.copytree(home / "adapter_sd", folder)
    file = folder / "models" / "ip-adapter_sd15.safetensors"
    tensors = dict(load_file(file))
    change(tensors)
    save_file(tensors, file)
    return folder


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda t: t.pop("ip_adapter.1.to_k_ip.weight"), "does not fit"),
        (lambda t: t.update({"ip_adapter.99.to_k_ip.weight": torch.ones(8, 8)}), "numbers of ip"),
        (lambda t: t.update({"image_proj.more": torch.ones(3)}), "does not fit|numbers of image"),
        (lambda t: t.update({"ip_adapter.1.to_k_ip.weight": torch.ones(4, 9)}), "does not fit"),
        (lambda t: t.update({"unet.x": torch.ones(1)}), "keys begin with 'unet'"),
        (lambda t: t.update({"image_proj.proj.weight": torch.ones(32, 48)}), "wants pictures"),
    ],
    ids=["missing", "more", "projection", "shape", "strange", "width"],
)  # fmt: skip
def test_GEN_06_an_adapter_that_does_not_fit_stops(
    home: Path, tmp_path: Path, change: Callable[..., Any], fault: str
) -> None:
    """GEN-06: all of the file is used, all of the adapter filled, the encoder is as wide."""
    folder = rewrite(home, tmp_path / "a", change)
    pipeline = checkpoint.pipeline(home / "sd", ("StableDiffusionPipeline",))
    file = folder / "models" / "ip-adapter_sd15.safetensors"
    with pytest.raises(InputError, match=fault):
        adapters.load_ip_adapter(pipeline, file, folder / "models" / "image_encoder", 1.0)


def test_GEN_06_an_adapter_without_encoder_or_file_stops(home: Path) -> None:
    """GEN-06: before the first picture, not with pictures of the text alone."""
    with pytest.raises(InputError, match="no image encoder there"):
        build(home, "ip_adapter_sd15", image_encoder_folder="models/none")
    with pytest.raises(InputError, match="would ignore the reference"):
        build(home, "ip_adapter_sd15", adapter_file="none.safetensors")


def test_an_adapter_as_a_bin_file(home: Path, tmp_path: Path) -> None:
    base = home / "sdxl"
    file = pipelines.save_ip_adapter(tmp_path, base, "ip-adapter_sdxl.bin", "image_encoder")
    pipeline = checkpoint.pipeline(base, ("StableDiffusionXLPipeline",))
    adapters.load_ip_adapter(pipeline, file, tmp_path / "image_encoder", 0.5)
    assert not adapters.takes_hidden_states(pipeline)


# --- checkpoints ---------------------------------------------------------------------------------


def damaged(home: Path, folder: Path, part: str, change: Callable[..., Any]) -> Path:
    shutil.copytree(home / "sd", folder)
    (file,) = (folder / part).glob("*.safetensors")
    tensors = dict(load_file(file))
    change(tensors, min(tensors))
    save_file(tensors, file, metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("part", ["unet", "vae", "text_encoder"])
@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda t, k: t.pop(k), "missing"),
        (lambda t, k: t.update({"more.weight": torch.ones(1)}), "unexpected"),
        (lambda t, k: t.update({k: torch.ones(3, 1)}), "another shape|expected shape"),
    ],
    ids=["missing", "unexpected", "shape"],
)
def test_a_checkpoint_is_whole(
    home: Path, tmp_path: Path, part: str, change: Callable[..., Any], fault: str
) -> None:
    folder = damaged(home, tmp_path / "c", part, change)
    with pytest.raises(InputError, match=fault):
        checkpoint.pipeline(folder, ("StableDiffusionPipeline",))


def test_variants_and_shards_are_read_as_the_hub_has_them(home: Path, tmp_path: Path) -> None:
    """SDXL comes as fp16 files, FLUX in several pieces."""
    whole = checkpoint.pipeline(home / "sdxl", ("StableDiffusionXLPipeline",), "float16")
    whole.save_pretrained(tmp_path, variant="fp16", max_shard_size="20KB")
    assert len(list((tmp_path / "unet").glob("*fp16*.safetensors"))) > 1
    again = checkpoint.pipeline(tmp_path, ("StableDiffusionXLPipeline",), "float16", "fp16")
    for part in ("unet", "vae", "text_encoder_2"):
        ours, theirs = getattr(again, part).state_dict(), getattr(whole, part).state_dict()
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[k], theirs[k]) for k in ours), part
    with pytest.raises(InputError, match="cannot be read"):
        checkpoint.pipeline(tmp_path, ("StableDiffusionXLPipeline",))
    min((tmp_path / "unet").glob("*fp16*.safetensors")).unlink()
    with pytest.raises(InputError, match="cannot be read"):
        checkpoint.pipeline(tmp_path, ("StableDiffusionXLPipeline",), "float16", "fp16")


def test_another_pipeline_is_refused(home: Path) -> None:
    with pytest.raises(InputError, match=r"of the class FluxPipeline\n.*runs FluxKontextPipeline"):
        checkpoint.pipeline(home / "text", ("FluxKontextPipeline",))
    with pytest.raises(InputError, match="cannot be read"):
        checkpoint.pipeline(home, ("FluxPipeline",))


# --- pictures that are none ----------------------------------------------------------------------


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_GEN_02_a_decoder_that_overflows(home: Path, value: float) -> None:
    """GEN-02: the pipeline clips infinity to plain white; one such value is enough."""
    generator = build(home, "sd15", compute_batch=2)
    decoder, calls = generator.pipeline.vae.decoder, []

    def overflow(_module: Any, _given: Any, made: torch.Tensor) -> torch.Tensor:
        calls.append(len(made))
        made = made.clone()
        made[1, 0, 3, 3] = value
        return made

    hook = decoder.register_forward_hook(overflow, prepend=True)
    first, second = generator.generate(asked(2))
    assert calls == [2] and first.status == Status.OK
    assert second.status == Status.INVALID_IMAGE and second.image is None
    hook.remove()
    assert pixels(generator.generate(asked(2))).shape == (2, 16, 16, 3)


def test_GEN_02_half_precision_overflows(home: Path) -> None:
    """GEN-02: float16 ends at 65504; a VAE that goes beyond gives no picture."""
    generator = build(home, "sd15", dtype="float16", compute_batch=1)
    assert generator.pipeline.vae.dtype == torch.float16
    assert generator.generate(asked(1))[0].status == Status.OK
    generator.pipeline.vae.decoder.conv_in.weight.data *= 3e4
    (outcome,) = generator.generate(asked(1))
    assert outcome.status == Status.INVALID_IMAGE and "finite" in outcome.details["reason"]


def test_flags_of_the_safety_checker_are_kept(home: Path, tmp_path: Path) -> None:
    """What it flags becomes 'filtered', not a black picture with scores."""
    folder = pipelines.save_sd(tmp_path / "sd", checker=True)
    card = cards.load("generator", "sd15").model_copy(update={"weights": Weights(path=str(folder))})
    plugin = cards.plugin("generator", card, "sd15")
    params = plugin.Params(steps=2, safety_checker=True, compute_batch=2)
    generator = plugin(params, card, None, "cpu")
    checker = generator.pipeline.safety_checker
    checker.concept_embeds_weights.data.fill_(2.0)  # a cosine is never so high
    checker.special_care_embeds_weights.data.fill_(2.0)
    assert pixels(generator.generate(asked(2))).any()
    checker.concept_embeds_weights.data.fill_(-2.0)
    flagged = generator.generate(asked(2))
    assert {o.status for o in flagged} == {Status.FILTERED} and flagged[0].image is None
    with pytest.raises(InputError, match="the checkpoint has none"):
        build(home, "sd15", safety_checker=True)


# --- memory and devices --------------------------------------------------------------------------


def limit(generator: Native, most: int) -> list[int]:
    """Let the denoiser run out of memory beyond so many pictures; returns what it was asked for."""
    model = generator.pipeline.unet
    forward, seen = model.forward, []

    def limited(sample: torch.Tensor, *args: Any, **options: Any) -> Any:
        seen.append(len(sample) // 2)  # guidance doubles it
        if len(sample) // 2 > most:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB")
        return forward(sample, *args, **options)

    model.forward = limited
    return seen


def test_out_of_memory_halves_what_runs_at_once(home: Path) -> None:
    jobs = asked(8)
    whole = pixels(build(home, "sd15", compute_batch=8).generate(jobs))
    generator = build(home, "sd15", compute_batch=8)
    seen = limit(generator, 3)
    outcomes = generator.generate(jobs)
    assert seen == [8, 4, *[2] * 8]  # 4 batches, 2 steps each
    assert {o.details["pictures_per_pass"] for o in outcomes} == {2}
    assert np.abs(pixels(outcomes) - whole).max() <= 2
    seen.clear()
    generator.generate(jobs[:2])
    assert seen == [2, 2]  # what did not fit is not tried again


def test_a_model_that_does_not_fit_says_so(home: Path) -> None:
    generator = build(home, "sd15", compute_batch=4)
    seen = limit(generator, 0)
    with pytest.raises(InputError, match=r"cannot hold one picture .* out of memory"):
        generator.generate(asked(2))
    assert seen == [4, 2, 1]


def test_one_picture_that_does_not_fit_fails_alone(home: Path) -> None:
    generator = build(home, "sd15", compute_batch=1)
    assert generator.generate(asked(1))[0].status == Status.OK
    seen = limit(generator, 0)
    outcomes = generator.generate(asked(2))
    assert {o.status for o in outcomes} == {Status.FAILED} and len(seen) == 2
    assert "out of memory" in outcomes[0].details["reason"]


@pytest.mark.parametrize(
    "error", [torch.AcceleratorError("CUDA error: unspecified launch failure"),
              RuntimeError("CUDA error: an illegal memory access was encountered")]
)  # fmt: skip
def test_a_lost_device_stops_the_job(home: Path, error: RuntimeError) -> None:
    generator = build(home, "sd15")

    def lost(*_: Any, **__: Any) -> Any:
        raise error

    generator.pipeline.unet.forward = lost
    with pytest.raises(InputError, match="does not answer any more: CUDA error") as caught:
        generator.generate(asked(1))
    assert "run snakemake again" in caught.value.mend
    generator.pipeline.unet.forward = None  # any other fault stays what it is
    with pytest.raises(TypeError):
        generator.generate(asked(1))


# --- single models -------------------------------------------------------------------------------


def test_ace_plus_shows_the_reference_at_the_left() -> None:
    canvas, mask = diptych(Image.new("RGB", (100, 50), "red"), 32, 48)
    assert canvas.size == mask.size == (96 + 32, 48)
    assert canvas.getpixel((95, 0)) == (255, 0, 0) and canvas.getpixel((96, 0)) == (0, 0, 0)
    shown = np.asarray(mask)
    assert (shown[:, :96] == 0).all() and (shown[:, 96:] == 255).all()


def test_omini_control_without_a_reference_is_flux(home: Path) -> None:
    """Our forward pass against diffusers' own; the LoRA acts on references only."""
    generator = build(home, "omini_control")
    model = generator.pipeline.transformer
    given = {
        "hidden_states": torch.randn(2, 4, 8),
        "encoder_hidden_states": torch.randn(2, 5, 32),
        "pooled_projections": torch.randn(2, 32),
        "timestep": torch.tensor([0.7, 0.7]),
        "img_ids": torch.rand(4, 3).round(),
        "txt_ids": torch.zeros(5, 3),
    }
    model.disable_adapters()
    with torch.inference_mode():
        wanted = type(model).forward(model, **given, return_dict=False)[0]
        model.enable_adapters()
        generator.way.condition = None
        assert torch.allclose(generator.way.forward(**given)[0], wanted, atol=1e-5)
        generator.arguments(asked(1))
        heard = generator.way.forward(**given)[0]
    assert heard.shape == wanted.shape and not torch.allclose(heard, wanted, atol=1e-3)


def test_omini_control_is_flux_with_more_picture_tokens(home: Path) -> None:
    """Without LoRA and at time 0, a reference is nothing but further tokens of the picture."""
    generator = build(home, "omini_control", lora_scale=0.0)
    model = generator.pipeline.transformer
    picture, reference = torch.randn(1, 4, 8), torch.randn(1, 3, 8)
    places, further = torch.rand(4, 3).round(), torch.rand(3, 3).round() + 5
    rest = {
        "encoder_hidden_states": torch.randn(1, 5, 32),
        "pooled_projections": torch.randn(1, 32),
        "timestep": torch.zeros(1),
        "txt_ids": torch.zeros(5, 3),
    }
    generator.way.condition = (reference, further)
    with torch.inference_mode():
        ours = generator.way.forward(hidden_states=picture, img_ids=places, **rest)[0]
        theirs = type(model).forward(
            model,
            hidden_states=torch.cat([picture, reference], 1),
            img_ids=torch.cat([places, further]),
            return_dict=False,
            **rest,
        )[0][:, :4]
    assert torch.allclose(ours, theirs, atol=1e-5)


def test_a_reference_is_padded_to_a_square() -> None:
    out = np.asarray(squared(Image.new("RGB", (20, 10), "red"), 8))
    assert out.shape == (8, 8, 3) and (out[2:6] == [255, 0, 0]).all() and (out[:2] == 255).all()


@pytest.mark.parametrize("name", ["omnigen", "qwen_image_edit_2509"])
def test_what_needs_torchvision_says_so_while_planning(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = cards.load("generator", name)
    plugin = cards.plugin("generator", card, name)
    params = cards.params("generator", Use(card=name), name)
    for found, ok in ((None, False), (object(), True)):
        monkeypatch.setattr(importlib.util, "find_spec", lambda _, found=found: found)
        (said,) = plugin.checks(params, card, Path())
        assert said.ok == ok
        if ok:
            plugin.check(params, card, Path())
        else:
            with pytest.raises(InputError, match="torchvision is missing"):
                plugin.check(params, card, Path())


def test_a_template_of_omnigen_shows_the_reference() -> None:
    use = Use(card="omnigen", params={"template": "{prompt}"})
    with pytest.raises(InputError, match="would not be seen"):
        cards.params("generator", use, "x")
