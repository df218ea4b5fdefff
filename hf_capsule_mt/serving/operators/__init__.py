"""For whoever runs the server: its log, numbers and signals, a page about its routes, and limits of connections."""
