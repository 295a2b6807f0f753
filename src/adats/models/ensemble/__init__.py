"""One of several whole models is right."""
