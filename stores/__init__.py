"""The ground floor: the nouns, their Arrow schemas, the journal and the durable parts."""
