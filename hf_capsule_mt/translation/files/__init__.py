"""Inputs of any size and kind, translated by one road.

job.py says what is translated, and how. sources.py reads an input in windows of units, crew.py translates these on all
processes, and sinks.py makes bytes of them, which journal.py keeps until all are done. run.py puts these together, for
one input and for many. output_folders.py knows where the outputs of many stand, and which are complete.
"""

from .run import translate_file
