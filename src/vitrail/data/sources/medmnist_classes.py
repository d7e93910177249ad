"""The class names of the MedMNIST files, which hold numbers only (Yang et al. 2023, Sci Data)."""

from __future__ import annotations

from pathlib import Path

_ORGANS = (
    "bladder", "femur-left", "femur-right", "heart", "kidney-left", "kidney-right", "liver",
    "lung-left", "lung-right", "pancreas", "spleen",
)  # fmt: skip
_NAMES: dict[str, tuple[str, ...]] = {
    "pathmnist": (
        "adipose", "background", "debris", "lymphocytes", "mucus", "smooth muscle",
        "normal colon mucosa", "cancer-associated stroma",
        "colorectal adenocarcinoma epithelium",
    ),
    "dermamnist": (
        "actinic keratoses and intraepithelial carcinoma", "basal cell carcinoma",
        "benign keratosis-like lesions", "dermatofibroma", "melanoma", "melanocytic nevi",
        "vascular lesions",
    ),
    "octmnist": (
        "choroidal neovascularization", "diabetic macular edema", "drusen", "normal",
    ),
    "pneumoniamnist": ("normal", "pneumonia"),
    "retinamnist": ("0", "1", "2", "3", "4"),
    "breastmnist": ("malignant", "normal or benign"),
    "bloodmnist": (
        "basophil", "eosinophil", "erythroblast", "immature granulocytes", "lymphocyte",
        "monocyte", "neutrophil", "platelet",
    ),
    "tissuemnist": (
        "collecting duct, connecting tubule", "distal convoluted tubule",
        "glomerular endothelial cells", "interstitial endothelial cells", "leukocytes",
        "podocytes", "proximal tubule segments", "thick ascending limb",
    ),
    "organamnist": _ORGANS,
    "organcmnist": _ORGANS,
    "organsmnist": _ORGANS,
}  # fmt: skip


def find_medmnist_classes(path: Path, labels: set[int]) -> tuple[str, ...] | None:
    """The names for a file that is called as MedMNIST calls it (`pathmnist.npz`,
    `pathmnist_224.npz`), if its labels are numbers of them; else None."""
    names = _NAMES.get(path.stem.casefold().partition("_")[0])
    if names is None or not labels or not labels <= set(range(len(names))):
        return None
    return names
