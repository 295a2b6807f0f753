"""Side by side with peers, and with the raw cost of the random numbers: `make bench`."""
