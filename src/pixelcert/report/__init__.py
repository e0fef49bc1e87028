"""Report: certificates as one self-contained HTML page."""

from .page import certificate_page as certificate_page
