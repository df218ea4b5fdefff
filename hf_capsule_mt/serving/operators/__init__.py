"""For whoever runs the server: numbers, a page about its routes, and connections that must not wait for ever."""
