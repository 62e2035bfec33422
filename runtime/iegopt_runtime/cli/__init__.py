"""What the runtime adds to the command line of iegopt; modules here import what is heavy in their handlers."""
