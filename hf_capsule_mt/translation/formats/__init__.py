"""Formats of files that are translated as a whole: one file a format, behind the interface in `base.py`."""

from .base import Document, FileFormat, Text
from .recognition import FORMATS, LINES, recognise
