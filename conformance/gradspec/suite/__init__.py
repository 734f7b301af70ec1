"""The tests: one module for each chapter of the spec, collected by the plug-in only."""
