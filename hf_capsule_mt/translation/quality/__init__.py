"""Can a translation be trusted? judge.py asks signals.py, which looks at a forced pass of the model, and surface.py.

report.py writes judgements down. report_page.py shows a report in a browser, in the order of suspicion.py.
"""
