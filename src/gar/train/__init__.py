"""What `gar train` does. `run` has the steps of a run, `inputs` loads, `checks` comes before loading.

`resume` reads what an interrupted run left. Import the module that you need: `run` imports torch and TRL.
"""
