"""The same work on pfl-research (PyPI `pfl`), in one process with one thread.

    benchmarks/.peers/pfl/bin/python benchmarks/peers/pfl_loop.py --model small-cnn --rounds 20

What differs from the raw loop is pfl's own way: BatchNorm statistics are not averaged but stay
in its one resident model, and the first round also evaluates each site before and after
training, which `rounds_per_second_steady` leaves out.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import torch
import torch.nn.functional as F
import work
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn

import models


class Classifier(nn.Module):
    """A network with the two methods pfl asks for."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.train()(x), y)

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Weighted]:
        total = F.cross_entropy(self.eval()(x), y, reduction="sum").item()
        return {"loss": Weighted(total, len(y))}


class RoundTimes(TrainingProcessCallback):
    """Reads the clock at the end of each round."""

    def __init__(self, clock: work.Clock) -> None:
        self.clock = clock

    def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Metrics]:
        self.clock.tick()
        return False, Metrics()


def make_federation(x: Tensor, y: Tensor) -> FederatedDataset:
    """The sites, each in a fresh order whenever it is drawn."""
    draw = torch.Generator().manual_seed(1)

    def site_data(site: int) -> PyTorchTensorDataset:
        order = torch.randperm(work.IMAGES, generator=draw)
        site_rows = work.get_rows(site)
        return PyTorchTensorDataset([x[site_rows][order], y[site_rows][order]], user_id=str(site))

    return FederatedDataset(site_data, get_user_sampler("minimize_reuse", range(work.SITES)))


def main() -> None:
    """Time the rounds and print the figures."""
    args = work.parse_arguments()
    torch.set_num_threads(1)
    x, y = work.make_images()
    x = x.to(memory_format=torch.channels_last)
    network = models.build(args.model).to(memory_format=torch.channels_last)
    classifier = Classifier(network)
    central = torch.optim.SGD(classifier.parameters(), lr=1.0)
    data = make_federation(x, y)
    clock = work.Clock()
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=args.rounds,
            evaluation_frequency=args.rounds + 1,
            train_cohort_size=work.SITES_A_ROUND,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(data, data, postprocessors=[WeightByDatapoints()]),
        model=PyTorchModel(classifier, torch.optim.SGD, central),
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=work.RATE, local_batch_size=work.BATCH
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=work.BATCH),
        callbacks=[RoundTimes(clock)],
        send_metrics_to_platform=False,
    )
    final = work.compute_loss(network, x, y)
    work.report(args, clock, final, system="pfl-research", pfl=version("pfl"))


if __name__ == "__main__":
    main()
