"""The decision service: two verbs over HTTP, durable, in one process.

`spec` says what an experiment is, `messages` what comes in and goes out, `rules` what becomes of a
reward, and `served_experiment` is an experiment at work. `engine` ties these together, one
operation at a time; `commit_queue` commits operations in groups. `stores` keeps the rows, `http`
speaks HTTP, and `errors` has all that can go wrong, with its code.
"""
