"""The properties that hold after each step of a simulated cluster; docs/simulation.md: how to add one."""
