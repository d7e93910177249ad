"""How far each attack gets on plain networks, undefended, at a stated number of iterations.

    python benchmarks/inversion.py --data cifar10.npz --net lenet --attack dlg
    python benchmarks/inversion.py --data cifar10.npz --net small-cnn --width 64 --attack ig
    python benchmarks/inversion.py --data cifar10.npz --net resnet8 --attack ig --train 300

The first images of the file are attacked, in the file's order; weights are drawn from a fixed
key. `--train N` trains N steps of 64 other images first. BatchNorm uses the statistics it has.
`--picture FILE.png` shows originals above what was recovered.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

from vitrail import rng
from vitrail.attack import ATTACKS, Budget, Job, one_step
from vitrail.attack.image_scores import score_images
from vitrail.attack.inversion.label_inference import compute_label_recovery, infer_labels
from vitrail.data.normalize import Normalize
from vitrail.models import build
from vitrail.models.backbones.lenet import uniform_

HELD_OUT = 1000  # images from here on train the network; those before it are attacked


def make_network(
    args: argparse.Namespace, images: np.ndarray, labels: np.ndarray
) -> torch.nn.Module:
    key = rng.derive_server_key(args.seed)
    model = build(args.net, 10, width=args.width, key=key.at("net"))
    if args.net == "lenet":
        uniform_(model, 0.5, key.at("uniform").torch())
    if args.train:
        model.train()
        solver = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        draw = key.at("batches").torch()
        for _ in range(args.train):
            at = HELD_OUT + torch.randint(len(images) - HELD_OUT, (64,), generator=draw).numpy()
            solver.zero_grad()
            F.cross_entropy(
                model(normalize_images(images[at])), torch.from_numpy(labels[at])
            ).backward()
            solver.step()
        with torch.no_grad():
            model.eval()
            right = (
                model(normalize_images(images[:HELD_OUT])).argmax(1).numpy() == labels[:HELD_OUT]
            )
            print(f"accuracy on the first {HELD_OUT} images: {right.mean():.3f}")
    return model.eval()


def normalize_images(pixels: np.ndarray) -> torch.Tensor:
    return Normalize.from_name("half", 3)(pixels).contiguous()


def print_scores(
    name: str, recovered: torch.Tensor, truth: torch.Tensor, others: torch.Tensor
) -> None:
    scores = [s for a, b in zip(recovered, truth, strict=True) for s in score_images(a, b, others)]
    values = [s.psnr for s in scores]
    print(
        f"{name:<14} PSNR {np.mean(values):5.1f} dB (sd {np.std(values, ddof=1):.1f}, "
        f"least {min(values):.1f}, over 30 dB: {sum(v > 30 for v in values)}/{len(values)})  "
        f"SSIM {np.mean([s.ssim for s in scores]):.2f}  "
        f"identified {np.mean([s.identified for s in scores]):.0%}"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--net", default="small-cnn")
    parser.add_argument("--width", type=int)
    parser.add_argument("--attack", default="ig")
    parser.add_argument("--images", type=int, default=10, help="rows of `batch` images each")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--train", type=int, default=0)
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--restarts", type=int, default=1)
    parser.add_argument("--tv", type=float)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--picture", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    data = np.load(args.data)
    images, labels = data["x_train"], data["y_train"].reshape(-1).astype(np.int64)
    rows, batch = args.images, args.batch
    chosen = images[: rows * batch]
    x = normalize_images(chosen).view(rows, batch, 3, 32, 32)
    y = torch.from_numpy(labels[: rows * batch]).view(rows, batch)
    model = make_network(args, images, labels)
    scene = one_step(model, x, y, Normalize.from_name("half", 3), 10, steps=args.steps)
    options = {"restarts": args.restarts} | ({} if args.tv is None else {"tv": args.tv})
    began = time.perf_counter()
    recovery = ATTACKS[args.attack](args.attack, options).recover(
        scene, Job(Budget(iterations=args.iterations))
    )
    truth = (torch.from_numpy(chosen).permute(0, 3, 1, 2).float() / 255).view_as(x)
    others = torch.from_numpy(images[HELD_OUT : HELD_OUT + 200]).permute(0, 3, 1, 2).float() / 255
    print(scene.threat.sentence())
    mean = others.mean(0).expand_as(truth).contiguous()
    print_scores("random image", others[: rows * batch].view_as(truth), truth, others)
    print_scores("mean image", mean, truth, others)
    print_scores(args.attack, recovery.images, truth, others)
    seconds = time.perf_counter() - began
    share = compute_label_recovery(infer_labels(scene), y)
    print(f"{recovery.iterations} iterations, {seconds:.0f} s, labels inferred {share:.0%}")
    if args.picture:
        lines = [torch.cat(list(t.flatten(0, 1)[:16]), 2) for t in (truth, recovery.images)]
        pixels = (torch.cat(lines, 1).permute(1, 2, 0) * 255).round().byte().numpy()
        side = pixels.shape
        Image.fromarray(pixels).resize((side[1] * 3, side[0] * 3), 0).save(args.picture)


if __name__ == "__main__":
    main()
