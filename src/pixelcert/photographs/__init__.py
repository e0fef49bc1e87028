"""Photographs: found in a folder, chosen once, and saved so that anyone can find them again."""

from .choosing import choose as choose
from .folder import Photograph as Photograph
from .folder import find_photographs as find_photographs
from .folder import unlisted_images as unlisted_images
from .selection import Chosen as Chosen
from .selection import Grid as Grid
from .selection import Request as Request
from .selection import Selection as Selection
from .selection import compose_grid as compose_grid
from .selection import read_chosen as read_chosen
