"""Where the service keeps its rows: `interface` says what a store is, `sqlite` is one."""
