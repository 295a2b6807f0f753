"""Problems, compiled loops, runs on any number of workers."""
