"""What the commands do, as functions: each module holds one of them, without printing."""
