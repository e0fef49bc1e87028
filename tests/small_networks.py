"""Small versions of the paper's architectures, with random weights: quick enough to try everything on them."""

import torch
from torch import nn

import pixelcert as pc
from pixelcert.models.loading import torchvision_models

models = torchvision_models()
SIZE = 64


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


def resnet() -> nn.Module:
    return models.resnet.ResNet(models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=10)


def vgg() -> nn.Module:
    net = models.VGG(models.vgg.make_layers([8, "M", 16, "M", 16, "M"]), num_classes=10)
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
