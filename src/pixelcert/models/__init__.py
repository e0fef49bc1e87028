"""Models: a classifier that owns its preprocessing, and the places it can be loaded from."""

from .classifier import Classifier as Classifier
from .loading import load_model as load_model
from .loading import model_names as model_names
