"""The backbones. Importing this package registers them all in `BACKBONES`."""

from vitrail.models.backbones.densenet import densenet121
from vitrail.models.backbones.efficientnet import efficientnet_lite0
from vitrail.models.backbones.lenet import LeNet, lenet, uniform_
from vitrail.models.backbones.resnet import resnet8, resnet18, resnet50
from vitrail.models.backbones.small_cnn import small_cnn
from vitrail.models.backbones.vgg import vgg19

__all__ = [
    "LeNet",
    "densenet121",
    "efficientnet_lite0",
    "lenet",
    "resnet8",
    "resnet18",
    "resnet50",
    "small_cnn",
    "uniform_",
    "vgg19",
]
