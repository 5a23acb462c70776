"""A local web page over a lake, live while a daemon writes."""
