"""The whole configuration of a run as frozen, typed tables. One class is one section."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[float, Field(gt=0.0)]
Count = Annotated[int, Field(ge=1)]


class Table(BaseModel):
    """A section: frozen, and an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Augment(Table):
    """Random views of a training image, drawn by the site; 0 or false turns one off."""

    crop: Annotated[int, Field(ge=0)] = 0
    flip: bool = False
    rotate: Annotated[float, Field(ge=0, le=180)] = 0.0
    shear: Annotated[float, Field(ge=0, le=45)] = 0.0
    cutout: Annotated[int, Field(ge=0)] = 0

    @property
    def active(self) -> bool:
        """Whether any random view is asked for."""
        return bool(self.crop or self.flip or self.rotate or self.shear or self.cutout)


class Aviary(Table):
    """The embedded birds: how many images, of how many classes, drawn from which seed."""

    images: Count = 1200
    classes: Annotated[int, Field(ge=2)] = 6
    seed: int = 7


class Dicom(Table):
    """How DICOM pixels become 8 bits: the file's own window, a fixed one, or percentiles."""

    scale: Literal["auto", "window", "percentile", "full"] = "auto"
    center: float | None = None
    width: Positive | None = None


class Data(Table):
    """`[data]`: where the images are and what their labels mean."""

    source: str = "embedded"
    path: str | None = None
    image_size: Annotated[int, Field(ge=8, le=2048)] | None = None
    channels: Literal[1, 3] | None = None
    resize: Literal["crop", "stretch", "pad"] = "crop"
    normalize: Literal["auto", "half", "imagenet", "efficientnet", "unit"] = "auto"
    image: str = "image"
    label: str = "label"
    site: str | None = None
    patient: str | None = None
    split: str | None = None
    box: str | None = None
    positive: str | None = None
    negatives: str = "rest"
    balance: bool = False
    uncertain: Literal["negative", "drop"] = "negative"
    classes: tuple[str, ...] | None = None
    rename: dict[str, str] = {}
    limit: Count | None = None
    broken: Literal["stop", "skip"] = "stop"
    max_pixels: Count = 40_000_000
    cache: Literal["auto", "memory", "disk"] = "auto"
    augment: Augment = Augment()
    views: tuple[Literal["identity", "flip", "rotate90", "rotate180", "rotate270"], ...] = ("identity",)
    aviary: Aviary = Aviary()
    dicom: Dicom = Dicom()


class Partition(Table):
    """`[partition]`: how images are dealt out to sites."""

    kind: Literal["iid", "dirichlet", "shards", "column", "quantity"] = "iid"
    sites: Count = 4
    alpha: Positive = 0.5
    shards: Count = 2
    column: str | None = None
    minimum: Count = 2
    test_fraction: Annotated[float, Field(ge=0.0, lt=1.0)] | None = None


class Bias(Table):
    """`[bias]` (or `[[bias]]`): a shortcut injected into some classes of some sites."""

    kind: Literal["emoji", "text", "patch", "border", "blur", "brightness", "color", "replace"]
    sites: tuple[str | int, ...] = (0,)
    classes: tuple[str | int, ...] = (0,)
    strength: Annotated[float, Field(ge=0, le=1)] = 1.0
    position: tuple[Share, Share] | Literal[
        "upper-left", "upper-right", "lower-left", "lower-right", "center", "random"
    ] = "lower-left"
    size: Annotated[float, Field(gt=0, le=1)] = 0.15
    share: Share = 1.0
    color: tuple[int, int, int] = (220, 30, 30)
    text: str = "L"
    device: str | None = None
    where: tuple[Literal["train", "push", "test"], ...] = ("train", "push", "test")


class Model(Table):
    """`[model]`: the backbone, its weights and what of it is trained."""

    backbone: str = "small-cnn"
    width: Count | None = None
    weights: str | None = None
    frozen: bool | str = False
    norm: Literal["average", "home", "group"] = "average"
    cache_features: bool = True


class Method(BaseModel):
    """`[method]`: the name; every other key is an option that the method itself checks."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: str = "fedavg"

    @property
    def options(self) -> dict[str, Any]:
        """The keys beside `name`."""
        return dict(self.model_extra or {})


class PartOptimizer(Table):
    """`[optimizer.parts.NAME]`: other values for one part of the model."""

    lr: Positive | None = None
    weight_decay: Annotated[float, Field(ge=0)] | None = None


class Optimizer(Table):
    """`[optimizer]`: what is left out is the method's own choice."""

    name: Literal["sgd", "adam"] | None = None
    lr: Positive | None = None
    momentum: Annotated[float, Field(ge=0, lt=1)] | None = None
    weight_decay: Annotated[float, Field(ge=0)] | None = None
    parts: dict[str, PartOptimizer] = {}


class Aggregate(Table):
    """`[aggregate]`: what replaces a method's plain mean, and when an update is refused."""

    rule: str = "mean"
    weights: Literal["method", "examples", "uniform"] = "method"
    trim: Annotated[float, Field(ge=0, lt=0.5)] = 0.1
    byzantine: Annotated[int, Field(ge=0)] = 1
    clip: Positive = 10.0
    max_norm: Positive = 100.0


class Release(BaseModel):
    """`[release]`: the defenses at the door, in order; options in `[release.<name>]`."""

    model_config = ConfigDict(extra="allow", frozen=True)
    defenses: tuple[str, ...] = ()

    @property
    def options(self) -> dict[str, Any]:
        """The option tables, by defense."""
        return dict(self.model_extra or {})


class Run(Table):
    """`[run]`: how long, how many at once, from which seed, and what is kept."""

    rounds: Annotated[int, Field(ge=0)] = 10
    local_epochs: Count = 1
    batch_size: Count = 32
    participation: Annotated[float, Field(gt=0, le=1)] = 1.0
    seed: Annotated[int, Field(ge=0)] = 1
    workers: Count = 1
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    evaluate_every: Count = 1
    checkpoint_every: Count = 1
    record_updates: bool = False
    plugins: tuple[str, ...] = ()
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    deadline: Positive | None = None
    slowness: Annotated[float, Field(ge=0, le=3)] = 0.5
    min_sites: Count = 1


class Config(Table):
    """A run, completely."""

    data: Data = Data()
    partition: Partition = Partition()
    bias: tuple[Bias, ...] = ()
    model: Model = Model()
    method: Method = Method()
    optimizer: Optimizer = Optimizer()
    aggregate: Aggregate = Aggregate()
    release: Release = Release()
    run: Run = Run()

    @model_validator(mode="after")
    def _combinations(self) -> Config:
        """Combinations that cannot be meant; each message names the keys."""
        data, part, model = self.data, self.partition, self.model
        if part.kind == "column" and not (part.column or data.site):
            raise ValueError('partition.kind = "column" needs partition.column, the column that names the site')
        if data.positive is None and (data.balance or data.negatives != "rest"):
            raise ValueError("data.balance and data.negatives need data.positive, the finding to tell from the rest")
        if model.frozen and model.cache_features and data.augment.active:
            raise ValueError(
                "data.augment draws random views, which cached features cannot follow: "
                "set model.cache_features = false, or use data.views, a fixed list"
            )
        if len(data.views) > 1 and data.augment.active:
            raise ValueError("data.views and data.augment are two ways to vary images: keep one")
        if self.run.participation < 1 and self.method.name in ("local", "centralized"):
            raise ValueError(f'run.participation must be 1.0 with method.name = "{self.method.name}"')
        return self
