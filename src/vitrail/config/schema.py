"""The whole configuration of a run as frozen, typed tables. One class is one section.

The string under a key is its line in the reference (`python -m vitrail.config.reference_page`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator

from vitrail.config.added_keys import KeyPath, added, restore_old_options
from vitrail.config.annotation_section import Annotation
from vitrail.config.debias_section import Debias
from vitrail.config.hostile_section import Hostile
from vitrail.config.model_section import Model as Model
from vitrail.config.model_section import Prototypes as Prototypes
from vitrail.config.model_section import Subspaces as Subspaces
from vitrail.config.section import Count as Count
from vitrail.config.section import NonNegative as NonNegative
from vitrail.config.section import Positive as Positive
from vitrail.config.section import Section as Section
from vitrail.config.section import Share as Share

View = Literal["identity", "flip", "rotate90", "rotate180", "rotate270"]
Corner = Literal["upper-left", "upper-right", "lower-left", "lower-right", "center", "random"]
Side = Literal["train", "push", "test"]


class Augment(Section):
    """`[data.augment]`: random views of a training image, drawn by the site."""

    crop: Annotated[int, Field(ge=0)] = 0
    """Shift by up to so many pixels, the border reflected."""
    flip: bool = False
    """Mirror left and right, half of the time."""
    rotate: Annotated[float, Field(ge=0, le=180)] = 0.0
    """Turn by up to so many degrees."""
    shear: Annotated[float, Field(ge=0, le=45)] = 0.0
    """Shear by up to so many degrees."""
    cutout: Annotated[int, Field(ge=0)] = 0
    """Blank a square of so many pixels."""

    @property
    def active(self) -> bool:
        """Whether any random view is asked for."""
        return bool(self.crop or self.flip or self.rotate or self.shear or self.cutout)


class Aviary(Section):
    """`[data.aviary]`: the embedded birds."""

    images: Count = 1200
    """How many images are drawn."""
    classes: Annotated[int, Field(ge=2)] = 6
    """How many kinds of birds, which differ only in parts."""
    seed: int = 7
    """The seed of the drawing; the run's seed does not change the birds."""


class Dicom(Section):
    """`[data.dicom]`: how DICOM pixels become 8 bits."""

    scale: Literal["auto", "window", "percentile", "full"] = "auto"
    """The file's window, its percentiles, its full range; auto: window, else percentile."""
    center: float | None = None
    """A window center instead of the file's."""
    width: Positive | None = None
    """A window width instead of the file's."""


class Data(Section):
    """`[data]`: where the images are and what their labels mean."""

    source: str = "embedded"
    """embedded, folder, manifest, parquet, npz, dicom, or the layout of a public data set."""
    path: str | None = None
    """The folder or file, relative to the configuration file."""
    image_size: Annotated[int, Field(ge=8, le=2048)] | None = None
    """Pixels of a side after resizing; left out: the common size, else 224."""
    channels: Literal[1, 3] | None = None
    """1 for gray, 3 for RGB; left out: gray if every image is."""
    resize: Literal["crop", "stretch", "pad"] = "crop"
    """Cut the longer side, change the aspect ratio, or add a border."""
    bits: Literal["auto"] | Annotated[int, Field(ge=8, le=16)] = added("auto", before=16)
    """Bits that 16-bit files and arrays really use; auto: what the largest value of all needs."""
    normalize: Literal["auto", "half", "imagenet", "efficientnet", "unit"] = "auto"
    """What the network sees; auto: what the backbone's weights were trained with."""
    folders: Literal["auto", "class", "site/class"] = added("auto", before="class")
    """What folders are named after; auto: classes, unless several folders hold the same folders
    inside, which may be sites with classes: then the run stops and asks."""
    image: str = "image"
    """The column that holds the image or its path."""
    label: str = "label"
    """The column that holds the label."""
    site: str | None = None
    """The column that names the site."""
    patient: str | None = None
    """The column that names the patient; a patient is never on both sides of a split."""
    split: str | None = None
    """The column that says train or test."""
    box: str | None = None
    """The column with a box (x0, y0, x1, y1) in pixels of the original."""
    positive: str | None = None
    """With lists of findings: the finding to tell apart."""
    negatives: str = "rest"
    """rest: all others; none: images without a finding; or the name of another finding."""
    balance: bool = False
    """Under-sample the larger classes, in the training part only."""
    uncertain: Literal["negative", "drop"] = "negative"
    """What CheXpert's uncertain labels become."""
    classes: tuple[str, ...] | None = None
    """Class names in order; labels outside of it are refused."""
    partial: bool = False
    """These are one site's images of a larger federation: some of its classes may be missing."""
    keep: Count | tuple[str, ...] | None = None
    """Use only these classes: their names, or the first so many in order."""
    rename: dict[str, str] = {}
    """Other names for labels, old = new."""
    limit: Count | None = None
    """Use at most so many images, drawn in proportion to classes and splits."""
    broken: Literal["stop", "skip"] = "stop"
    """What an unreadable or missing file does: stop the run, or be left out and counted."""
    duplicates: Literal["together", "ignore"] = added("together", before="ignore")
    """Equal and nearly equal images: never in both training and test, or not looked for."""
    conflicts: Literal["stop", "allow"] = added("stop", before="allow")
    """What equal images with different labels do: stop the run, or nothing."""
    max_pixels: Count = 40_000_000
    """Images with more pixels are refused before they are decoded."""
    cache: Literal["auto", "memory", "disk"] = "auto"
    """Where decoded images are; auto: memory below a quarter of what is free."""
    augment: Augment = Augment()
    """See `[data.augment]`."""
    views: tuple[View, ...] = ("identity",)
    """A fixed list of views for cached features, instead of random ones."""
    aviary: Aviary = Aviary()
    """See `[data.aviary]`."""
    dicom: Dicom = Dicom()
    """See `[data.dicom]`."""
    annotations: tuple[Annotation, ...] = ()
    """See `[[data.annotations]]`."""
    public: Data | None = None
    """Images that no site holds and the server may see, for methods that train there: the same
    keys, as far as they say where images are; their labels are not used."""


class Partition(Section):
    """`[partition]`: how images are dealt out to sites."""

    kind: Literal["iid", "dirichlet", "shards", "column", "quantity", "one"] = "iid"
    """Shuffled, skewed labels, a few labels each, by a column, skewed sizes, or all at one site."""
    sites: Count = 4
    """How many sites (not for column and one)."""
    name: str = "site"
    """The site's name, for one."""
    alpha: Positive = 0.5
    """Dirichlet's parameter; smaller is more skewed."""
    shards: Count = 2
    """Shards a site, for shards."""
    column: str | None = None
    """The column that names the site, for column."""
    minimum: Count = 2
    """Every site has at least so many images."""
    test_fraction: Annotated[float, Field(ge=0.0, lt=1.0)] | None = None
    """The share each site holds out; left out: 0.2, or nothing if the data has a test split."""
    folds: Annotated[int, Field(ge=2)] | None = None
    """Cut every site into so many parts, class by class; one of them is held out instead."""
    fold: Annotated[int, Field(ge=0)] = 0
    """Which part, from 0; with one seed every image is held out in exactly one fold."""
    validation: Annotated[float, Field(gt=0.0, lt=1.0)] | None = added(None)
    """A share of the images, the same for every seed and partition, that is never tested: settings
    are chosen on it, `vitrail tune` does."""
    validate_only: bool = added(False)
    """Hold out that share in place of test images, which are then trained on."""
    without: tuple[str, ...] = ()
    """Sites that are dealt images as ever and then take no part: those that withdrew."""
    per_class: Count | None = None
    """Train on at most so many images of a class, over all sites; test images stay as they are."""


class Bias(Section):
    """`[bias]` or `[[bias]]`: a shortcut injected into some classes of some sites."""

    kind: Literal[
        "emoji", "text", "patch", "ruler", "electrode", "tape",
        "border", "brightness", "color", "gamma", "contrast", "saturation", "vignette",
        "blur", "noise", "jpeg", "resample", "sharpen", "posterize", "scanlines",
        "replace",
    ]  # fmt: skip
    """What is done to an image: a mark, a change of tone and color, one of how it was taken and
    kept; replace: images that carry `device` stand in for it."""
    sites: tuple[str | int, ...] = (0,)
    """Site names, or numbers in order."""
    classes: tuple[str | int, ...] = (0,)
    """Class names, or numbers in order."""
    strength: Share = 1.0
    """From 0, nothing, to 1, full."""
    position: tuple[Share, Share] | Corner = "lower-left"
    """The mark's center as shares of width and height, or a word."""
    size: Annotated[float, Field(gt=0, le=1)] = 0.15
    """The mark's size as a share of the shorter side."""
    share: Share = 1.0
    """The share of images touched."""
    color: tuple[int, int, int] = (220, 30, 30)
    """Red, green and blue of marks."""
    text: str = "L"
    """What a text mark says."""
    device: str | None = None
    """For replace: the second finding that the images carry."""
    where: tuple[Side, ...] = ("train", "push", "test")
    """In which parts of the site's images."""


class Method(BaseModel):
    """`[method]`: the name; every other key is an option that the method itself checks."""

    model_config = ConfigDict(extra="allow", frozen=True, use_attribute_docstrings=True)
    name: str = "fedavg"
    """`vitrail methods` lists them."""

    @property
    def options(self) -> dict[str, Any]:
        """The keys beside `name`."""
        return dict(self.model_extra or {})


class PartOptimizer(Section):
    """`[optimizer.parts.NAME]`: other values for one part (backbone, neck, prototypes, head)."""

    lr: Positive | None = None
    """Its learning rate."""
    weight_decay: NonNegative | None = None
    """Its weight decay."""


class Optimizer(Section):
    """`[optimizer]`: what is left out is the method's own choice."""

    name: Literal["sgd", "adam"] | None = None
    """The optimizer; it starts fresh in each turn."""
    lr: Positive | None = None
    """The learning rate of every part; what a method sets by part, decays too, then counts no
    longer."""
    momentum: Annotated[float, Field(ge=0, lt=1)] | None = None
    """SGD's momentum."""
    weight_decay: NonNegative | None = None
    """L2 penalty on the weights of every part, also where a method sets its own by part; frames of
    subspaces have no length to shrink."""
    parts: dict[str, PartOptimizer] = {}
    """See `[optimizer.parts.NAME]`."""
    schedule: Literal["constant", "cosine", "linear", "step"] = "constant"
    """How the rate of every part changes over rounds: down to `final_share` of it in the last one
    on a cosine or a line, or by `step_share` each `step_rounds` rounds."""
    final_share: Share = 0.0
    """What is left of the rate in the last round, for cosine and linear."""
    step_rounds: Count = 10
    """Rounds between two steps, for step."""
    step_share: Annotated[float, Field(gt=0, le=1)] = 0.1
    """What is left of the rate after a step, for step."""


class Aggregate(Section):
    """`[aggregate]`: what replaces a method's plain mean, and when an update is refused."""

    rule: str = "mean"
    """mean, norm-clip, or a rule that stands hostile sites: median, trimmed-mean, krum, multi-krum,
    geometric-median, centered-clipping, fltrust (with trusted images in data.public)."""
    weights: Literal["method", "examples", "uniform"] = "method"
    """How much a site counts: the method's choice, its images, or all the same, as it is with
    median, trimmed-mean, krum and multi-krum whatever the method chooses."""
    trim: Annotated[float, Field(ge=0, lt=0.5)] = 0.1
    """The share of sites cut at each end, rounded up, for trimmed-mean."""
    byzantine: Annotated[int, Field(ge=0)] = 1
    """How many hostile sites are reckoned with, by krum, multi-krum and bucketing."""
    radius: Positive | Literal["median"] = "median"
    """How far from its center centered-clipping lets an update be; median: as the middle one."""
    clip_steps: Count = 3
    """Steps of centered-clipping."""
    bucket: Count = 1
    """Mean of so many updates at random before a rule that sees single updates."""
    clip: Positive = 10.0
    """The largest norm of a site's change, for norm-clip."""
    max_norm: Positive = 100.0
    """The guard refuses a change over max_norm x (1 + norm of the model)."""
    alarms: bool = True
    """Compare the updates of a round and raise an alarm for a site that stays odd; the result does
    not depend on it. Sums under masks show no single update."""
    quarantine: Annotated[int, Field(ge=0)] = 0
    """Leave a site under alarm out for so many rounds."""
    norm_bound: Literal["alarm", "refuse"] = "alarm"
    """What a change of more than 5 times the median of past rounds does: count in the alarm, or
    be refused."""
    largest_weight: Annotated[float, Field(ge=1)] | None = None
    """No site counts more than so many times the median site of a round; left out: no bound in a
    simulation, 3 in a real federation, where the number of images is a site's own claim."""


class Release(BaseModel):
    """`[release]`: the defenses at the door, in order; options in `[release.<name>]`."""

    model_config = ConfigDict(
        extra="allow", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )
    defenses: tuple[str, ...] = ()
    """What an update passes before it leaves a site."""
    energy: Positive | None = None
    """The length of the noise over that of the update's change, for defenses that add noise;
    left out: each defense's own scale."""
    secure_sum: bool = False
    """Mask every update, so that the server learns the sum over the sites of a round only; for
    rules that need no more than a sum, and rounds of at least 2 sites."""

    @property
    def options(self) -> dict[str, Any]:
        """The option tables, by defense."""
        return dict(self.model_extra or {})


class Run(Section):
    """`[run]`: how long, how many at once, from which seed, and what is kept."""

    rounds: Annotated[int, Field(ge=0)] = 10
    """How many rounds."""
    local_epochs: Count = 1
    """Epochs a site trains in a round."""
    batch_size: Count = 32
    """Images in a step."""
    participation: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The share of sites in a round, drawn from the seed."""
    seed: Annotated[int, Field(ge=0)] = 1
    """The root of every draw; same seed, same result, to the bit."""
    workers: Count = 1
    """Worker processes, one thread each; the result does not depend on it."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """auto: a CUDA device where there is one."""
    evaluate_every: Count = 1
    """Evaluate each k rounds, and at the end."""
    checkpoint_every: Count = 1
    """Write a checkpoint each k rounds, and at the end."""
    record_updates: bool = False
    """Keep exactly what was sent and received, in server/transcript."""
    plugins: tuple[str, ...] = ()
    """Your own modules: dotted names, or .py files relative to this file."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The chance that a chosen site does not answer, drawn from the seed."""
    deadline: Positive | None = None
    """Drop sites slower than so many times the median site (simulated)."""
    slowness: Annotated[float, Field(ge=0, le=3)] = 0.5
    """The spread of the sites' simulated speeds, for deadline."""
    local_reference: bool | None = None
    """Also train each site alone, for the audit; left out: with prototype methods."""
    min_sites: Count = 1
    """A round with fewer accepted updates is void."""
    loggers: tuple[str, ...] = ()
    """Where figures go too: csv, json, tensorboard, mlflow, a plug-in's; NAME or NAME:TARGET."""


class Config(Section):
    """A run, completely."""

    data: Data = Data()
    partition: Partition = Partition()
    bias: tuple[Bias, ...] = ()
    hostile: tuple[Hostile, ...] = ()
    model: Model = Model()
    method: Method = Method()
    optimizer: Optimizer = Optimizer()
    aggregate: Aggregate = Aggregate()
    release: Release = Release()
    debias: Debias = Debias()
    run: Run = Run()
    _absent: tuple[KeyPath, ...] | None = PrivateAttr(default=None)

    def mark_stored(self, absent: Iterable[KeyPath]) -> None:
        """Say that it is that of a run folder, and which keys the folder's file does not have."""
        self._absent = tuple(absent)

    @property
    def is_stored(self) -> bool:
        """Whether it is that of a run folder, where a missing option has its old value."""
        return self._absent is not None

    @property
    def absent(self) -> tuple[KeyPath, ...]:
        """The keys that the run folder it was read from does not have."""
        return self._absent or ()

    def read_options(self, model: type[BaseModel], table: Mapping[str, Any]) -> dict[str, Any]:
        """The options of a method or a defense, as its class is to check them."""
        return restore_old_options(model, table) if self.is_stored else dict(table)

    @model_validator(mode="after")
    def _check_combinations(self) -> Config:
        """Combinations that cannot be meant; each message names the keys."""
        data, part, model = self.data, self.partition, self.model
        if part.kind == "column" and not (part.column or data.site):
            raise ValueError(
                'partition.kind = "column" needs partition.column, the column that names the site'
            )
        if part.folds is not None and part.test_fraction is not None:
            raise ValueError("partition.folds and partition.test_fraction both hold out: keep one")
        if part.fold >= (part.folds or 1):
            raise ValueError(f"partition.fold = {part.fold} needs partition.folds of more")
        if data.partial and data.classes is None:
            raise ValueError("data.partial needs data.classes, the federation's classes in order")
        if data.positive is None and (data.balance or data.negatives != "rest"):
            raise ValueError(
                "data.balance and data.negatives need data.positive, the finding to tell apart"
            )
        if model.frozen and model.cache_features and data.augment.active:
            raise ValueError(
                "data.augment draws random views, which cached features cannot follow: "
                "set model.cache_features = false, or use data.views, a fixed list"
            )
        if model.runtime == "onnx" and not model.frozen:
            raise ValueError(
                'model.runtime = "onnx" computes frozen stages, and nothing is: set model.frozen'
            )
        if self.hostile and self.release.secure_sum:
            raise ValueError(
                "hostile sites are played on updates that are seen one by one: leave hostile or "
                "release.secure_sum out"
            )
        _check_public(data.public)
        if self.debias.last_rounds >= self.run.rounds > 0:
            raise ValueError("debias.rounds are the last of run.rounds, which must be more")
        if len(data.views) > 1 and data.augment.active:
            raise ValueError("data.views and data.augment are two ways to vary images: keep one")
        if len(data.views) > 1 and not (model.frozen and model.cache_features):
            raise ValueError("data.views needs cached features: set model.frozen")
        return self


def _check_public(public: Data | None) -> None:
    """Public images have no sites, and are fed to the network as the sites' images are."""
    if public is None:
        return
    for key in ("site", "patient", "partial", "normalize", "augment", "views", "public"):
        if getattr(public, key) != Data.model_fields[key].default:
            raise ValueError(f"data.public.{key} means nothing for public images: leave it out")
