"""The decision service: two verbs over HTTP, durable, in one process.

`spec` says what an experiment is, `rules` what becomes of a reward, and `model` is the agent of an
experiment. `store` says what is kept, `sqlite` and `file` keep it. `engine` ties these together,
one operation at a time; `queue` commits operations in groups, and `app` speaks HTTP.
"""
