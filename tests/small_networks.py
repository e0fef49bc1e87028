"""Small versions of the paper's architectures, with random weights: quick enough to try everything on them."""

from typing import Any

import torch
from torch import Tensor, nn

import pixelcert as pc
from pixelcert.explainer import Tuning
from pixelcert.models.loading import torchvision_models

models = torchvision_models()
SIZE = 64
HALF = (0.5, 0.5, 0.5)
MEAN, STD = (0.1, 0.2, 0.3), (0.5, 0.25, 2.0)


def _shaken(net: nn.Module) -> nn.Module:
    """Weights that matter: torchvision begins heads at zero and batch norms at the identity."""
    generator = torch.Generator().manual_seed(0)
    for name, parameter in net.named_parameters():
        if "head" in name or "fc" in name:
            nn.init.normal_(parameter, std=0.3, generator=generator)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, std=0.1, generator=generator)
            nn.init.uniform_(module.running_var, 0.5, 1.5, generator=generator)
    return net


class ResNet(models.ResNet):
    """torchvision's, with an eighth of the channels."""

    def _make_layer(self, block: type[nn.Module], planes: int, *args: Any, **options: Any) -> nn.Sequential:
        return super()._make_layer(block, planes // 8, *args, **options)


def resnet() -> nn.Module:
    net = ResNet(models.resnet.BasicBlock, [1, 1, 1, 1])
    net.fc = nn.Linear(64, 10)
    return net


def vgg(batch_norm: bool = False) -> nn.Module:
    with torch.device("meta"):  # 123 million weights that are replaced
        net = models.VGG(nn.Sequential(), init_weights=False)
    net.features = models.vgg.make_layers([8, "M", 16, "M", 16, "M"], batch_norm)
    net.avgpool = nn.AdaptiveAvgPool2d(4)
    net.classifier = nn.Sequential(
        nn.Linear(16 * 16, 32), nn.ReLU(True), nn.Dropout(), nn.Linear(32, 24), nn.ReLU(True), nn.Linear(24, 10)
    )
    return net


def vit() -> nn.Module:
    return models.VisionTransformer(
        image_size=SIZE, patch_size=16, num_layers=3, num_heads=2, hidden_dim=32, mlp_dim=64, num_classes=10
    )


NETWORKS = {"resnet": resnet, "vgg": vgg, "vit": vit}


def small_model(name: str) -> pc.Classifier:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = _shaken(NETWORKS[name]())
    return pc.Classifier(net, mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3), name=f"small {name}", size=SIZE)


def images(batch: int = 2, size: int = 64) -> Tensor:
    return torch.rand(batch, 3, size, size, generator=torch.Generator().manual_seed(1))


class Tiny(nn.Module):
    """A network in four modules: conv, pool, fc, and one it never calls."""

    def __init__(self, outputs: int = 5) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(4, outputs)
        self.unused = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.pool(self.conv(x)).flatten(1))


def tiny(mean: tuple[float, ...] = MEAN, std: tuple[float, ...] = STD) -> pc.Classifier:
    torch.manual_seed(0)
    return pc.Classifier(Tiny(), mean=mean, std=std, size=16)


def assert_same(actual: Tensor, expected: Tensor) -> None:
    """Equal to rounding, at the scale of the values themselves."""
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5 * float(expected.detach().abs().max()))


def tuning(dtype: torch.dtype | None = None, compiled: bool = False) -> Tuning:
    """A settled tuning that asks for bfloat16, or for the model's own precision."""
    return Tuning(1, "float32" if dtype is None else "bfloat16", compiled)
