"""Loading: models by name, from files and functions; every model is the real thing, with random weights unless said."""

from __future__ import annotations

import csv
import pickle
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import save_file
from small_networks import assert_same, images

import pixelcert as pc
from pixelcert.models.loading import _from_torchvision, torchvision_models

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="module")
def resnet18() -> pc.Classifier:
    torch.manual_seed(0)
    return pc.load_model("resnet18", weights=None, device="cpu")


ZOO = """
import pixelcert as pc
from torch import nn

NUMBER = 3

def build():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return pc.Classifier(net, mean=(0.5,) * 3, std=(0.5,) * 3, name="mine")

def build_net():
    return build().net

def build_wide(width):
    return build()
"""


@pytest.fixture
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "zoo_of_mine.py").write_text(ZOO)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "zoo_of_mine", raising=False)


def test_names_start_with_the_embedded_and_the_papers_models() -> None:
    names = pc.model_names()
    assert names[:6] == ["efficientnet_lite0", "resnet18", "wide_resnet50_2", "resnet152", "vgg11", "vit_b_16"]
    assert "densenet121" in names
    assert len(set(names)) == len(names)
    assert not any("rcnn" in name or "quantized" in name for name in names)


def test_torchvision_model_brings_its_preprocessing_size_and_classes(resnet18: pc.Classifier) -> None:
    mean, std = torch.tensor((0.485, 0.456, 0.406)), torch.tensor((0.229, 0.224, 0.225))
    assert_same(resnet18.normalise(torch.zeros(1, 3, 1, 1)).flatten(), -mean / std)
    assert (resnet18.name, resnet18.size) == ("resnet18", 224)
    assert resnet18.classes is not None
    assert (len(resnet18.classes), resnet18.classes[967]) == (1000, "espresso")


def test_size_is_one_that_the_network_takes() -> None:
    with torch.device("meta"):
        model = _from_torchvision("vit_h_14", None)  # its published weights are for 518 pixels
    assert model.num_classes == 1000


@pytest.mark.parametrize("name", ["resnet19", "Resnet18", "rsnet18"])
def test_unknown_model_is_refused_with_near_names(name: str) -> None:
    with pytest.raises(pc.ModelError, match=rf"{name}.*\bresnet18\b.*package.module:function"):
        pc.load_model(name)


def test_failed_download_is_told_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    for variable in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")  # nobody listens there
    for variable in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(pc.ModelError, match=r"weights of alexnet could not be downloaded.*weights=PATH"):
        pc.load_model("alexnet", device="cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
@pytest.mark.parametrize("device", ["cuda", "nonsense"])
def test_device_that_is_not_there_is_refused(device: str) -> None:
    with pytest.raises(pc.PixelcertError, match=device):
        pc.load_model("squeezenet1_1", weights=None, device=device)


def save_weights(model: pc.Classifier, path: Path) -> Path:
    state = model.net.state_dict()
    save_file(state, path) if path.suffix == ".safetensors" else torch.save(state, path)
    return path


@pytest.mark.parametrize("file", ["weights.safetensors", "weights.pth", "weights.pt"])
def test_weights_file_gives_the_same_model(resnet18: pc.Classifier, tmp_path: Path, file: str) -> None:
    loaded = pc.load_model("resnet18", save_weights(resnet18, tmp_path / file), device="cpu")
    assert loaded.weights_hash == resnet18.weights_hash
    with torch.no_grad():
        assert torch.equal(loaded(images()), resnet18(images()))


def test_weights_path_may_be_a_string(resnet18: pc.Classifier, tmp_path: Path) -> None:
    path = save_weights(resnet18, tmp_path / "weights.safetensors")
    assert pc.load_model("resnet18", str(path), device="cpu").weights_hash == resnet18.weights_hash


class Evil:
    """Unpickling it creates a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return open, (str(self.marker), "w")


@pytest.mark.parametrize("how", ["torch.save", "pickle"])
@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_pickled_code_is_refused_and_never_runs(tmp_path: Path, how: str, suffix: str) -> None:
    marker, path = tmp_path / "marker", tmp_path / f"evil{suffix}"
    content = {"conv1.weight": torch.zeros(1), "evil": Evil(marker)}
    if how == "pickle":
        path.write_bytes(pickle.dumps(content, protocol=2))
    else:
        torch.save(content, path)
    with pytest.raises(pc.ModelError, match="evil"):
        pc.load_model("squeezenet1_1", path)
    assert not marker.exists()
    if (how, suffix) == ("torch.save", ".pth"):  # the trap works: the unsafe way springs it
        torch.load(path, weights_only=False)["evil"].close()
        assert marker.exists()


def test_refused_pickle_comes_with_no_advice_to_load_it_unsafely(tmp_path: Path) -> None:
    path = tmp_path / "evil.pth"
    torch.save(Evil(tmp_path / "marker"), path)
    with pytest.raises(pc.ModelError) as refused:
        pc.load_model("squeezenet1_1", path)
    assert "state_dict()" in str(refused.value)
    assert not re.search("weights_only|can still be loaded|\033", str(refused.value))


def test_checkpoint_is_refused_with_a_remedy(resnet18: pc.Classifier, tmp_path: Path) -> None:
    torch.save({"state_dict": resnet18.net.state_dict(), "epoch": 3}, tmp_path / "last.pth")
    with pytest.raises(pc.ModelError, match=r"last\.pth is a checkpoint.*save only net\.state_dict\(\)"):
        pc.load_model("resnet18", tmp_path / "last.pth")


@pytest.mark.parametrize("file", ["cut.safetensors", "cut.pth"])
@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
def test_truncated_weights_are_refused(resnet18: pc.Classifier, tmp_path: Path, file: str, share: float) -> None:
    path = save_weights(resnet18, tmp_path / file)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(pc.ModelError, match=re.escape(str(path))):
        pc.load_model("resnet18", path)


@pytest.mark.parametrize("content", [b"hello world\n", b"version https://git-lfs.github.com\n", b"\x80\x02\x9c"])
@pytest.mark.parametrize("file", ["text.safetensors", "text.pth"])
def test_file_that_holds_no_weights_is_refused(tmp_path: Path, file: str, content: bytes) -> None:
    (tmp_path / file).write_bytes(content)
    with pytest.raises(pc.ModelError, match=file):
        pc.load_model("squeezenet1_1", tmp_path / file)


@pytest.mark.parametrize("file", ["nowhere.safetensors", "nowhere.pth"])
def test_missing_weights_are_refused(tmp_path: Path, file: str) -> None:
    with pytest.raises(pc.ArgumentError, match=rf"{file} is not a file"):
        pc.load_model("squeezenet1_1", tmp_path / file)


@pytest.mark.parametrize("file", ["resnet18.safetensors", "resnet18.pth"])
def test_weights_of_another_architecture_are_refused_in_a_few_lines(
    resnet18: pc.Classifier, tmp_path: Path, file: str
) -> None:
    path = save_weights(resnet18, tmp_path / file)
    with pytest.raises(pc.ModelError, match=rf"{file} are not those of SqueezeNet") as refused:
        pc.load_model("squeezenet1_1", path)
    assert len(str(refused.value)) < 1000


@pytest.mark.usefixtures("zoo")
@pytest.mark.parametrize("name", ["efficientnet_lite0", "zoo_of_mine:build"])
def test_weights_are_refused_where_they_would_be_ignored(name: str, tmp_path: Path) -> None:
    (tmp_path / "ignored.pth").touch()
    with pytest.raises(pc.ModelError, match=r"ignored\.pth cannot be given"):
        pc.load_model(name, tmp_path / "ignored.pth", device="cpu")


@pytest.mark.filterwarnings("ignore:The default weight initialization:FutureWarning")
def test_published_weights_from_a_file_are_preprocessed_as_published(tmp_path: Path) -> None:
    """torchvision's GoogLeNet and Inception transform their input again, but only if built with weights=."""
    state = torchvision_models().googlenet(weights=None, init_weights=False).state_dict()
    save_file(state, tmp_path / "googlenet.safetensors")
    model = pc.load_model("googlenet", tmp_path / "googlenet.safetensors", device="cpu")
    assert model.net.transform_input


@pytest.mark.usefixtures("zoo")
def test_own_function_is_called() -> None:
    model = pc.load_model("zoo_of_mine:build", device="cpu")
    assert (model.name, model.num_classes) == ("mine", 4)


@pytest.mark.usefixtures("zoo")
def test_own_function_must_return_a_classifier() -> None:
    with pytest.raises(pc.ModelError, match=r"zoo_of_mine:build_net returned Sequential.*Classifier\(net, mean"):
        pc.load_model("zoo_of_mine:build_net")


@pytest.mark.usefixtures("zoo")
@pytest.mark.parametrize(
    "name",
    [
        "zoo_of_mine:missing",
        "zoo_of_mine:",
        "zoo_of_yours:build",
        ":build",
        ".zoo_of_mine:build",
        "zoo_of_mine:NUMBER",
        "zoo_of_mine:build_wide",
    ],
)
def test_own_function_that_cannot_be_had_is_refused(name: str) -> None:
    with pytest.raises(pc.ModelError, match=re.escape(name)):
        pc.load_model(name)


def test_torchvision_imports_whatever_torch_is_beside_it() -> None:
    import torchvision.transforms

    assert torchvision_models() is torchvision.models
    assert torchvision_models().resnet.BasicBlock(4, 4)


def test_torchvision_imports_after_the_user_has_tried_in_vain() -> None:
    code = """
try:
    import torchvision
except RuntimeError:
    pass
from pixelcert.models.loading import torchvision_models
print(torchvision_models().ResNet.__name__)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout) == (0, "ResNet\n"), done.stderr


def test_torchvision_that_imports_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    stub = ModuleType("torchvision")
    stub.models = ModuleType("torchvision.models")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchvision", stub)
    monkeypatch.setattr(torch.library, "define", lambda *_: pytest.fail("declared an operator"))
    assert torchvision_models() is stub.models
    assert sys.modules["torchvision"] is stub


def test_missing_torchvision_is_told_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)  # Python's own way to say that it cannot be imported
    with pytest.raises(pc.ModelError, match="pip install torchvision"):
        torchvision_models()


def test_another_fault_of_torchvision_is_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text("raise RuntimeError('CUDA versions differ')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    with pytest.raises(RuntimeError, match="CUDA versions differ"):
        torchvision_models()


@pytest.mark.skipif(not (SHARED / "weights").is_dir(), reason=f"no real weights: {SHARED / 'weights'} is not there")
@pytest.mark.skipif(not (SHARED / "images").is_dir(), reason=f"no photographs: {SHARED / 'images'} is not there")
def test_real_resnet18_recognises_photographs() -> None:
    model = pc.load_model("resnet18", SHARED / "weights" / "resnet18.safetensors", device="cpu")
    with (SHARED / "images" / "labels.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))[:16]
    batch = torch.stack([pc.load_image(SHARED / "images" / row["file"]) for row in rows])
    with torch.inference_mode():
        answers = model(batch).argmax(dim=1)
    right = sum(int(answer) == int(row["label"]) for answer, row in zip(answers, rows, strict=True))
    assert right >= 10


def test_embedded_model_recognises_the_embedded_photographs(embedded: pc.Classifier) -> None:
    pytest.importorskip("skimage", reason="the demo extra is not installed")
    from pixelcert.models.loading import photographs

    coffee, cat = (embedded.predict(pc.load_image(path)) for path in photographs())
    assert embedded.classes is not None
    assert embedded.classes[coffee[0]] == "espresso"
    assert coffee[1] > 0.9
    assert "cat" in embedded.classes[cat[0]]
