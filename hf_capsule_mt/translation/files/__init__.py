"""Files and corpora of any size.

lines.py translates lines of text: options.py says how, windows.py cuts a file into windows, and partial_output.py
keeps what is finished. whole.py translates a file of a format as a whole, and many_files.py many of them. rows.py
translates a column of rows, and row_files.py files of rows.
"""

from .whole import translate_file
