"""Compile PyTensor's graphs: functions, rewrites, and operations that compile quickly."""
