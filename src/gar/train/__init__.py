"""`gar train`: `checks` runs before anything is loaded, `inputs` loads, `run` has the steps of a run.

`resume` reads an interrupted run. Import the module that you need: `run` imports torch and TRL.
"""
