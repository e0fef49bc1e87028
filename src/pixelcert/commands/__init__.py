"""Commands."""

from .certify import app as app
from .certify import main as main
