"""Report: votes and studies as an interactive page, written to disk or served to this machine."""

from .page import Written as Written
from .page import write_page as write_page
from .page import write_study_page as write_study_page
