"""Published data with known answers, sent through lpfloop's measures and readers."""
