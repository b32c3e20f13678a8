import json

import numpy as np
import pytest
import torch
from transformers import AutoImageProcessor, AutoTokenizer, CLIPModel, ViTModel

from subjectbench.errors import InputError
from subjectbench.miniworld import train
from subjectbench.miniworld.draw import draw
from subjectbench.miniworld.scenes import VOCABULARY, Scene
from subjectbench.miniworld.subjects import make_subjects

TINY = ["--steps", "2", "--pool", "24", "--batch", "16"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    threads = torch.get_num_threads()
    base = tmp_path_factory.mktemp("weights")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "HELD_OUT_COUNT", 3)
        for recipe in ("clip", "dino", "hps"):
            more = {
                "clip": ["--alike-steps", "2"],
                "dino": [],
                "hps": ["--init", str(base / "clip")],
            }[recipe]
            argv = ["--recipe", recipe, "--out", str(base / recipe), *TINY, *more]
            assert train.main(argv) == 0
    torch.set_num_threads(threads)
    return base


@pytest.mark.parametrize("recipe", ["clip", "dino", "hps"])
def test_folder_loads_like_a_full_checkpoint(folders, recipe):
    folder = folders / recipe
    kind, extra = (ViTModel, {"add_pooling_layer": False}) if recipe == "dino" else (CLIPModel, {})
    model, info = kind.from_pretrained(folder, output_loading_info=True, **extra)
    assert not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert all(p.dtype == torch.float32 for p in model.parameters())
    processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
    image = draw(make_subjects(0, 1)[0], Scene(), 96)
    values = processor(images=image, return_tensors="pt")["pixel_values"]
    assert values.shape == (1, 3, 64, 64)
    record = json.loads((folder / "training.json").read_text())
    asked = {"steps": 2, "pool": 24, "batch": 16, "seed": 0}
    assert record["arguments"] == asked | ({"alike_steps": 2} if recipe == "clip" else {})
    assert record["held_out_skill"] and record["versions"]["torch"] == torch.__version__
    assert all(0 <= v <= 1 for v in record["held_out_skill"].values())
    assert str(folders) not in json.dumps(record)


def test_processor_agrees_with_training(folders):
    picture = np.asarray(draw(make_subjects(0, 1)[0], Scene(background="beach")))[None]
    for name, mean, std in (
        ("clip", train.CLIP_MEAN, train.CLIP_STD),
        ("dino", train.VIT_MEAN, train.VIT_STD),
    ):
        processor = AutoImageProcessor.from_pretrained(folders / name, backend="pil")
        values = processor(images=list(picture), return_tensors="pt")["pixel_values"]
        assert torch.allclose(values, train._pixels(picture, mean, std), atol=1e-4)


def test_the_last_word_changes_the_embedding(folders):
    tokenizer = AutoTokenizer.from_pretrained(folders / "clip")
    model = CLIPModel.from_pretrained(folders / "clip").eval()
    assert model.config.text_config.eos_token_id == tokenizer.eos_token_id != 2
    texts = ["a mug on a beach", "a mug on a desert", "a mug on a xylophone"]
    blank = torch.zeros(1, 3, 64, 64)
    for padding in (True, "max_length"):
        ids = tokenizer(texts, padding=padding, truncation=True, return_tensors="pt")
        with torch.no_grad():
            out = model(pixel_values=blank, **ids).text_embeds
        assert (out[0] - out[1]).abs().max() > 1e-3
        assert (out[0] - out[2]).abs().max() > 1e-3


def test_tokenizer():
    tokenizer = train.make_tokenizer()
    assert all(len(tokenizer.tokenize(word)) == 1 for word in VOCABULARY)
    assert tokenizer.model_max_length == train.CONTEXT
    long = tokenizer("red " * 60, truncation=True)["input_ids"]
    assert len(long) == train.CONTEXT and long[-1] == tokenizer.eos_token_id
    # An unknown word is spelt out; it is never the end token, where the model stops reading.
    odd = tokenizer("a zyx déjà 7!")["input_ids"]
    assert odd.count(tokenizer.eos_token_id) == 1


def test_held_out_subjects_are_the_default_study():
    assert train.held_out_subjects()[:24] == make_subjects(0, 24)


def test_hps_needs_a_start(tmp_path):
    with pytest.raises(InputError, match="mini_clip"):
        train.main(["--recipe", "hps", "--out", str(tmp_path), "--init", str(tmp_path)])
