"""Carries plans out: workers that serve the stages of a request, the KV caches they hand on, and their shell.

``iegopt`` never imports this package. Importing it is light: torch and transformers are loaded by the modules of
``lm``, ``kv`` and ``models`` alone, in the processes of workers.
"""
