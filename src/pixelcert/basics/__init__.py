"""Basics: messages, files, the machine: what every room uses."""
