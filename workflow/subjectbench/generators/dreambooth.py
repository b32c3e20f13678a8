"""DreamBooth: the subject's own UNet."""

from __future__ import annotations

from pathlib import Path

from subjectbench import checkpoint
from subjectbench.generators.personal import Personal
from subjectbench.generators.stable_diffusion import StableDiffusion
from subjectbench.tuning.dreambooth import FILE, FOLDER, DreamBooth


class DreamBoothSampler(Personal):
    """Fills the UNet with the subject's tensors, all of them."""

    tuning = DreamBooth

    class Params(DreamBooth.Params, StableDiffusion.Params):
        """Parameters of training and of sampling."""

    def take_up(self, folder: Path) -> None:
        """Load every tensor of the UNet."""
        self.pipeline.unet.load_state_dict(checkpoint.tensors(folder / FOLDER / FILE))


PLUGIN = DreamBoothSampler
