"""The decision service: two verbs over HTTP, durable, in one process.

`spec` says what an experiment is, `rules` what becomes of a reward, `model` holds the agent of an
experiment, `store`, `sqlite` and `file` keep everything, `engine` ties these together, one operation at a
time; `desk` commits operations in groups, and `app` speaks HTTP.
"""
