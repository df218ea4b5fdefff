"""Arguments, the trainer, the model it starts from, the record of a run, and checkpoint averaging."""
