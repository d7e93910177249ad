"""The phases of FedFed: learning which part of an image decides, and sharing it."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.local.evaluate import CHUNK
from vitrail.local.inputs import Rows, draw_epoch
from vitrail.local.optimizer import make_adam, make_steppers
from vitrail.local.phases.phase import Fit
from vitrail.local.session import Context, Metrics, Result, Site
from vitrail.local.sharing.unshared import drop_withheld, find_withheld_pixels
from vitrail.methods.base.auxiliary_model import build_module, load_into
from vitrail.methods.base.sharing_method import IMAGES, SHARE
from vitrail.models.flat import keep_statistics
from vitrail.models.vae import Vae
from vitrail.release.image_protection import Protection, protect
from vitrail.rng import Key, seed_torch

VAE, DISTILL = "vae", "distill"


def make_vae(options: Any, channels: int) -> Vae:
    """The autoencoder that the options describe; its weights are to be overwritten."""
    width, latent = options.vae_width, options.latent
    return build_module(lambda: Vae(channels, width, latent), Key(b"shapes"))


def load_received_vae(site: Site, ctx: Context) -> Vae:
    """The autoencoder as it came."""
    channels = site.inputs.images.shape[3]
    return load_into(make_vae(ctx.options, channels), site.down, VAE).to(site.inputs.device)


@dataclass(frozen=True)
class Distill:
    """Train the autoencoder and the model together, so that what the one leaves out is enough for
    the other. A site that trains alone has no autoencoder and only fits."""

    name: str = DISTILL

    def __call__(self, site: Site, ctx: Context) -> Metrics:
        """The model in place; the autoencoder is laid out to be sent."""
        if not any(name.startswith(f"{VAE}/") for name in site.down):
            return Fit()(site, ctx)
        vae, model, key = load_received_vae(site, ctx), site.model, site.key.at(self.name)
        order, draws = key.at("batches").torch(), key.at("latent").torch()
        result = Result(loss=0.0)
        with seed_torch(key.at("dropout")), model.training(None):
            moving = make_steppers(model, None, ctx.optimizer)
            moving.append(make_adam(vae.parameters(), ctx.options.vae_lr))
            for _ in range(ctx.epochs):
                for at in draw_epoch(len(site.rows.train), ctx.batch_size, order):
                    model.grads.zero_()
                    vae.zero_grad()
                    loss = compute_loss(site, vae, site.rows.train[at.numpy()], ctx.options, draws)
                    loss.backward()  # type: ignore[no-untyped-call]
                    for stepper in moving:
                        stepper.step()
                    result.steps += 1
                    result.images += len(at)
                    result.loss += float(loss.detach()) * len(at)
        result.loss /= max(1, result.images)
        site.result = site.result.combine(result)
        site.aside += result.images  # the model saw every image twice
        site.out |= {f"{VAE}/{n}": t.detach().cpu() for n, t in vae.state_dict().items()}
        return {"train_loss": result.loss}


def compute_loss(site: Site, vae: Vae, rows: Rows, options: Any, draws: torch.Generator) -> Tensor:
    """sensitive * CE(f(x - r), y) + whole * CE(f(x), y) + reconstruct * mean (x - r)^2
    + divergence * KL, with r = VAE(x)."""
    x, labels, network = load_pixels(site, rows), site.inputs.targets(rows), site.model.network
    noise = torch.randn(vae.shape(x), generator=draws).to(x.device)
    again, divergence = vae(x, noise)
    left = x - again
    with nullcontext() if options.statistics else keep_statistics(network):
        sensitive = F.cross_entropy(network(normalize_pixels(site, left)), labels)
    whole = F.cross_entropy(network(normalize_pixels(site, x)), labels)
    loss: Tensor = options.sensitive * sensitive + options.whole * whole
    loss = loss + options.reconstruct * left.square().mean() + options.divergence * divergence
    return loss


@dataclass(frozen=True)
class ShareFeatures:
    """Lay out x - VAE(x) of every image in two noised views, with its label."""

    name: str = SHARE
    sends: bool = True

    def __call__(self, site: Site, ctx: Context) -> Metrics:
        """The model stays as it is."""
        rows = drop_withheld(site.inputs, site.rows.train)
        left = compute_remainders(site, ctx, rows)
        left = left.masked_fill(find_withheld_pixels(site.inputs, rows)[..., None], 0.0)
        labels = torch.from_numpy(site.inputs.labels[rows])
        pixels, targets = [], []
        for view, sigma in enumerate(ctx.options.sigmas):
            key = site.noise.at(SHARE, view)
            protected = protect(left, labels, ctx.classes, Protection(sigma=sigma), key)
            pixels.append(protected.pixels)
            targets.append(protected.targets)
            site.lines.append({**protected.line, "view": view})
        site.out = {f"{IMAGES}/pixels": torch.cat(pixels), f"{IMAGES}/targets": torch.cat(targets)}
        return {"shared_images": float(sum(map(len, targets)))}

    def compute_unprotected(self, site: Site, ctx: Context) -> Tensor:
        """What the autoencoder leaves."""
        return compute_remainders(site, ctx, site.rows.train)


@torch.no_grad()
def compute_remainders(site: Site, ctx: Context, rows: Rows) -> Tensor:
    """What the autoencoder leaves of some images, [N, H, W, C] in [-1, 1]."""
    vae = load_received_vae(site, ctx)
    parts = [torch.empty(0, *site.inputs.images.shape[1:])]
    for start in range(0, len(rows), CHUNK):
        x = load_pixels(site, rows[start : start + CHUNK])
        parts.append((x - vae(x)[0]).permute(0, 2, 3, 1).cpu())
    return torch.cat(parts)


def load_pixels(site: Site, rows: Rows) -> Tensor:
    """Some images as [N, C, H, W] in [0, 1]."""
    raw = torch.from_numpy(site.inputs.images[rows]).to(site.inputs.device)
    return raw.permute(0, 3, 1, 2).to(torch.float32) / 255


def normalize_pixels(site: Site, x: Tensor) -> Tensor:
    """What the network sees of pixels [N, C, H, W] in [0, 1]."""
    pixels = (x * 255).permute(0, 2, 3, 1).cpu()
    return site.inputs.normalize(pixels).to(site.inputs.device)
