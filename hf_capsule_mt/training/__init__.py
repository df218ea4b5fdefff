"""Arguments, the trainer, the model it starts from, the record of a run, and checkpoint averaging.

To read it, begin with arguments.py and trainer.py, which follows a run from its beginning to its end: batches, updates,
evaluations, checkpoints. build.py and lora.py make the model that a run starts from, model_preparation.py gets it
ready, and training_data.py loads what it learns from. evaluating.py decodes and scores.

resuming.py and checkpoint_folders.py decide whether a run continues, and from where. callbacks.py and moving_average.py
act between updates, meter.py counts what a run reads, and run_recorder.py writes down how it went. averaging.py comes
after a run.
"""
