"""The command line: commands by topic, tables and the live display."""
