"""The ground floor: the row types, their Arrow schemas, the journal and durable storage."""
