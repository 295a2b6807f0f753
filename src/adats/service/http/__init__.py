"""The service over HTTP.

`operations` is the table of all requests, and `app` says what each asks of the engine. `endpoint`
is between ASGI and that: `access` says who may, `body` what exactly is asked. `openapi` describes
the table to programs, `docs_page` to people.
"""
